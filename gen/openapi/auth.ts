/** Generated from openapi/auth.yaml by `npm run gen`. Do not edit. */

export interface paths {
    "/v1/identities": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Create an identity
         * @description Creates an identity when no account is bound to the phone number yet. The id is made by the
         *     auth orchestration service. The phone number is stored in canonical E.164 form.
         */
        post: operations["createIdentity"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/identities/find-by-phone": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Find an identity by phone number
         * @description Answers the identity that the phone number entered on a form is bound to.
         */
        get: operations["findIdentityByPhone"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/identities/{id}": {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Identifier of the identity.
                 * @example 7f0d4c1e-usr
                 */
                id: components["parameters"]["IdentityIdPath"];
            };
            cookie?: never;
        };
        /**
         * Get an identity
         * @description Answers the identity with this id.
         */
        get: operations["getIdentity"];
        /**
         * Update an identity
         * @description Every field is optional and at least one must be present. An absent field is left as it is;
         *     `null` clears `email` or `metadata`. A body `id` that differs from the path is refused. A change of
         *     phone or e-mail ends no authorization.
         */
        put: operations["updateIdentity"];
        post?: never;
        /**
         * Delete an identity
         * @description Deletes the identity. Its authorizations end in the same transaction, and with them every token.
         */
        delete: operations["deleteIdentity"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/identities/{id}/password": {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Identifier of the identity.
                 * @example 7f0d4c1e-usr
                 */
                id: components["parameters"]["IdentityIdPath"];
            };
            cookie?: never;
        };
        get?: never;
        /**
         * Set the password
         * @description Sets the identity's password, and ends the authorizations that it had. Wrong passwords of before do not count
         *     against the new one, which can be used at once.
         */
        put: operations["setIdentityPassword"];
        post?: never;
        /**
         * Remove the password
         * @description Removes the identity's password and ends the authorizations that it had. Repeating it is 204 again.
         */
        delete: operations["removeIdentityPassword"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/identities/{id}/attempts": {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Identifier of the identity.
                 * @example 7f0d4c1e-usr
                 */
                id: components["parameters"]["IdentityIdPath"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Unlock an identity
         * @description Forgets the wrong passwords and one-time codes that count against the identity, so that it may try again at
         *     once. Repeating it is 204 again.
         */
        delete: operations["clearIdentityAttempts"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/identities/{id}/authorizations": {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Identifier of the identity.
                 * @example 7f0d4c1e-usr
                 */
                id: components["parameters"]["IdentityIdPath"];
            };
            cookie?: never;
        };
        /**
         * List the authorizations of an identity
         * @description Where the user is signed in, the newest first: what clients may do for the identity, with their state. One that
         *     has ended or expired is listed until its last token has expired, and for the rest of that day (UTC). Those of a
         *     deleted identity that had the same id are not listed, but for some of its last minute.
         */
        get: operations["listAuthorizations"];
        put?: never;
        post?: never;
        /**
         * End all authorizations of an identity
         * @description Signs the user out everywhere, however many authorizations there are, for the reason `OPERATOR`. Repeating it is
         *     204 again.
         */
        delete: operations["endAllAuthorizations"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/identities/{id}/authorizations/{authorizationId}": {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Identifier of the identity.
                 * @example 7f0d4c1e-usr
                 */
                id: components["parameters"]["IdentityIdPath"];
                /**
                 * @description Identifier of the authorization.
                 * @example 019a9f6e-5c1d-7b3a-9f00-3f2a51d0c111
                 */
                authorizationId: components["parameters"]["AuthorizationIdPath"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * End an authorization of an identity
         * @description Ends it with all of its tokens, for the reason `OPERATOR`. One that has ended already keeps its reason, and is
         *     204 again; that of another identity is 404.
         */
        delete: operations["endAuthorization"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/me/authorizations": {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        /**
         * List one's own authorizations
         * @description Where the user of the access token is signed in, as `listAuthorizations`. The one that the token is from has
         *     `current: true`.
         */
        get: operations["listOwnAuthorizations"];
        put?: never;
        post?: never;
        /**
         * End one's own authorizations
         * @description Signs the user of the access token out everywhere, for the reason `USER`: here as well, unless `except=current`
         *     keeps the authorization that the token is from.
         */
        delete: operations["endAllOwnAuthorizations"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/me/authorizations/{authorizationId}": {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Identifier of the authorization.
                 * @example 019a9f6e-5c1d-7b3a-9f00-3f2a51d0c111
                 */
                authorizationId: components["parameters"]["AuthorizationIdPath"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * End one of one's own authorizations
         * @description Ends it with all of its tokens, for the reason `USER`. One that has ended already keeps its reason, and is 204
         *     again; that of another user is 404.
         */
        delete: operations["endOwnAuthorization"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/organizations/{id}/authorizations": {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Identifier of the organization, as in the client's `organizations`.
                 * @example org-42
                 */
                id: components["parameters"]["OrganizationIdPath"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * End all authorizations for an organization
         * @description Ends what clients may do for the organization (grant `client_credentials`), however many authorizations there
         *     are: after the response, none of their tokens is active. It does not keep a client from asking for a new one;
         *     taking the organization out of the client's `organizations` does. An organization that nobody has acted for is
         *     204 as well, and so is repeating it.
         */
        delete: operations["endOrganizationAuthorizations"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/oauth2/v1/tokens": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Generate a token pair
         * @description Issues an access token and a refresh token. The client authenticates with its Basic credentials, or with
         *     `client_id` and `client_secret` in the body if it is registered for `client_secret_post`; never with both
         *     (RFC 6749 section 2.3).
         *
         *     - **Wrong credentials** are a 400 `invalid_client`, with `WWW-Authenticate`. RFC 6749 section 5.2 would have
         *       401 after Basic; the callers that this operation was made for know 400 alone.
         *     - **An unknown parameter** is ignored, an empty one counts as absent (RFC 6749 section 3.2): standard clients
         *       send parameters of extensions.
         *     - **A repeated parameter** is `invalid_request`, known or not (RFC 6749 section 3.2).
         *
         *     The body is a form (RFC 6749 section 3.2). A JSON object with the same members is taken as well
         *     (`x-also-accepts`). It is not listed, since generated clients that see two media types send one
         *     labelled as the other. In it, null counts as absent too: some clients send it for what is not set.
         *
         *     | `grant_type` | needs |
         *     |---|---|
         *     | `password` | `username` (phone, e-mail or id) and `password` |
         *     | `refresh_token` | `refresh_token` |
         *     | `phone_otp` | `phone`; `password` carries the one-time code if the client has it |
         *     | `auth` | `auth_id`. **Whoever has this client's secret can sign in as anybody: back ends only** |
         *     | `phone_otp_token` | `phone` and `otp_verification_token` |
         *     | `client_credentials` | Nothing; with `organization` the client acts for that one. The client acts for no user: `sub` is its id |
         *     | `authorization_code` | `code` and `code_verifier`: of `/oauth2/v1/authorize-challenge`, for apps without a secret |
         *
         *     **A client of the method `none`** sends `client_id` in the body and a proof of its key in the header `DPoP`
         *     (RFC 9449), with each request. Its refresh tokens are bound to that key: another key is `invalid_grant`, and ends
         *     nothing. Access tokens are Bearer tokens all the same. Presenting the replaced refresh token again gets the same
         *     new one, however late, until that has been used, and an access token signed anew: an app that was killed after
         *     a refresh goes on from where it was.
         *
         *     - **An exchange of the same code is repeated** within a minute, with the same key and verifier: it gets the same
         *       refresh token.
         *     - **A clock that is off** is a 400 `use_dpop_nonce`: send the proof again with the `nonce` of the header `DPoP-Nonce`.
         *
         *     A refresh token is replaced by each use. Presenting it again within the client's grace window
         *     answers the same new refresh token, byte for byte, so a lost response can be retried; presenting it
         *     later ends the whole authorization. The access token is the same while it is active; one that has
         *     expired or was revoked is replaced by another. `expires_in` and `refresh_expires_in` say what is left.
         *     A client that may not use `refresh_token` gets one all the same; it may only revoke it.
         */
        post: operations["generateTokens"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/oauth2/v1/authorize-challenge": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Sign a user in from an app
         * @description Signs a user in by a one-time code that is sent to the phone, from an app that has no secret: OAuth 2.0 for
         *     First-Party Applications (draft-ietf-oauth-first-party-apps-04), with PKCE (RFC 7636) and a key of the app's own
         *     (DPoP, RFC 9449). It is there where `FIRST_PARTY_APPS` is on, for clients of the method `none`.
         *
         *     | Request | Parameters | Response |
         *     |---|---|---|
         *     | Begin | `client_id`, `response_type=code`, `login_hint`, `code_challenge`, `code_challenge_method=S256`, `scope` if less than all | 403 `insufficient_authorization` with `auth_session`; the code is sent after the response |
         *     | The code | `auth_session`, `otp` | 200 with `authorization_code`; 403 again for a wrong one |
         *     | A new code | `auth_session` | 403 as at the beginning; 429 before `resend_after` |
         *
         *     - **Every request has a proof** in the header `DPoP`, all by the same key, which `grant_type=authorization_code` and
         *       each refresh need too.
         *     - **A session** lasts ten minutes. One that has expired, was begun by another key or client, has no tries left,
         *       or whose client was disabled is a 400 `invalid_session`: begin anew.
         *     - **A lost response** is repeated: the same right `otp` gets another `authorization_code`, which voids the one
         *       before, until one has been exchanged. No code is sent for that.
         *     - **Nobody learns who has an account:** an unknown phone gets the same responses, and no code.
         *     - `login_hint` begins anew, whatever `auth_session` comes with it. Beside `otp` it is `invalid_request`.
         *
         *     An unknown parameter is ignored, an empty one counts as absent, a repeated one is `invalid_request`.
         */
        post: operations["challengeAuthorization"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/oauth2/v1/introspect": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Introspect an access token
         * @description Answers whether an access token is active (RFC 7662). Callers: the internal client, a client that
         *     may introspect, or the holder of the platform API key. Every inactive token (unknown, expired,
         *     revoked, signed by somebody else, a refresh token) is answered alike: `{"active":false}`.
         *
         *     A client without `mayIntrospect` is a 401 `unauthorized_client` (RFC 7662 section 2.3).
         *
         *     Clients authenticate as at the token operation. An unknown parameter is ignored, a repeated one, known or
         *     not, is `invalid_request` (RFC 6749 section 3.2).
         *
         *     The body is a form (`application/x-www-form-urlencoded`), as RFC 7662 has it; another media type is a 415.
         */
        post: operations["introspectToken"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/oauth2/v1/revoke": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Revoke a token
         * @description A refresh token ends its authorization and every access token of it; an access token ends itself.
         *     Callers: the client that the token was issued to, or the internal client. Repeating it is 200
         *     again.
         *
         *     - **An unknown, expired or garbled token** is a 400 `invalid_token`, as is one of a client of the method `none` that
         *       was replaced before the last refresh; another client's is `unauthorized_client`. RFC 7009 section 2.2 would have 200; here a caller learns that it has ended nothing.
         *     - Clients authenticate as at the token operation; one of the method `none` sends `client_id`, and no proof. An
         *       unknown parameter is ignored, a repeated one, known or not, is `invalid_request` (RFC 6749 section 3.2).
         *
         *     The body is a form (`application/x-www-form-urlencoded`), as RFC 7009 has it; another media type is a 415.
         */
        post: operations["revokeToken"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/jwks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get the public key set
         * @description The public keys (RFC 7517) that signatures of issued tokens verify against; the current one, the next and the previous.
         */
        get: operations["getKeySet"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/.well-known/openid-configuration": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Discovery, where OpenID Connect libraries look
         * @description Metadata of this authorization server under its issuer (OpenID Connect Discovery 1.0 section 4), so that
         *     libraries which look here find the key set and the endpoints. There is no authorization endpoint, and there are
         *     no ID tokens: it does not make this server an OpenID provider.
         */
        get: operations["getOpenIdConfiguration"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/.well-known/oauth-authorization-server": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Discovery, where OAuth libraries look
         * @description Metadata of this authorization server (RFC 8414). It is also at the root of the host, where RFC 8414 section 3.1
         *     places that of an issuer with a path: `/.well-known/oauth-authorization-server/api/auth`.
         */
        get: operations["getAuthorizationServerMetadata"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * @description Unique identifier of the identity, generated by the auth orchestration service: printable ASCII characters,
         *     case-sensitive. In a path it is percent-encoded, as every path parameter: `a/b` is `a%2Fb`. URLs cannot
         *     name `.` and `..`, however they are encoded, and `find-by-phone` is another path.
         */
        IdentityId: string;
        /**
         * @description Phone number in international format: with the plus sign, with `00` in its place, or with neither.
         *     Spaces, dots, dashes and brackets are tolerated, and what comes with a number that is pasted: white space
         *     and invisible marks around it, full-width digits and plus sign. A national number is taken for an
         *     international one, or refused. A new number must be possible in its country's numbering plan of today.
         */
        PhoneInput: string;
        /** @description Phone number in canonical E.164 form. */
        Phone: string;
        /**
         * Format: email
         * @description E-mail address, unique without regard to case.
         */
        Email: string;
        /** @description A map of property names to any JSON values; at most 16 KiB as JSON, 32 levels deep. Numbers are doubles; one with more digits is a 400. */
        Metadata: {
            [key: string]: unknown;
        };
        /** @description An identity to create. */
        IdentityCreation: {
            id: components["schemas"]["IdentityId"];
            phone: components["schemas"]["PhoneInput"];
            /**
             * Format: email
             * @description E-mail address, unique without regard to case.
             */
            email?: string | null;
            /** @description A map of property names to any JSON values; at most 16 KiB as JSON, 32 levels deep. Numbers are doubles; one with more digits is a 400. */
            metadata?: {
                [key: string]: unknown;
            } | null;
        };
        /** @description What to change. An absent field stays, null clears. */
        IdentityChange: {
            /** @description The id in the path, or absent; it cannot be changed, so null is refused. */
            id?: components["schemas"]["IdentityId"];
            /** @description Phone number in international format. Every identity has one, so null is refused. */
            phone?: components["schemas"]["PhoneInput"];
            /**
             * Format: email
             * @description E-mail address, unique without regard to case.
             */
            email?: string | null;
            /** @description A map of property names to any JSON values; at most 16 KiB as JSON, 32 levels deep. Numbers are doubles; one with more digits is a 400. */
            metadata?: {
                [key: string]: unknown;
            } | null;
        };
        /** @description A user as authentication sees it. `email` and `metadata` are absent while they are not set. */
        Identity: {
            id: components["schemas"]["IdentityId"];
            phone: components["schemas"]["Phone"];
            email?: components["schemas"]["Email"];
            metadata?: components["schemas"]["Metadata"];
            /** @description How this identity can authenticate. */
            readonly authenticationTypes: components["schemas"]["AuthenticationType"][];
        };
        /**
         * @description One way in which an identity can authenticate.
         * @enum {string}
         */
        AuthenticationType: "PHONE_OTP" | "PASSWORD";
        /** @description An identity found by its phone number. */
        FoundIdentity: {
            id: components["schemas"]["IdentityId"];
            phone: components["schemas"]["Phone"];
            email?: components["schemas"]["Email"];
        };
        /** @description The password to set. */
        IdentityPassword: {
            /**
             * @description 8 to 128 characters, and 8 also once accents are joined to their letters. Refused are one character
             *     repeated, and the 10,000 most common passwords in any case (NIST SP 800-63B section 3.1.1.2). Without
             *     `format`, from which generators make types that hide their value also when it is sent.
             */
            password: string;
        };
        /** @description A page of authorizations, the newest first. */
        AuthorizationsPage: {
            content: components["schemas"]["Authorization"][];
            /**
             * Format: uuid
             * @description The `after` of the next page; absent on the last one.
             */
            next?: string;
        };
        /** @description What a client may do for a user, from a sign-in on; with all tokens that come from it. */
        Authorization: {
            /**
             * Format: uuid
             * @description Its identifier; the claim `sid` of its access tokens.
             */
            id: string;
            /** @description The client that it was granted to. */
            clientId: string;
            /** @description The grant of the sign-in, as in the token request. */
            grantType: string;
            /** @description What was permitted at the sign-in. A token of it has no scope that the client has lost since. */
            scopes: string[];
            state: components["schemas"]["AuthorizationState"];
            reason?: components["schemas"]["RevocationReason"];
            /**
             * Format: date-time
             * @description When the user signed in.
             */
            registeredAt: string;
            /**
             * Format: date-time
             * @description When the newest token pair was issued; at first `registeredAt`.
             */
            refreshedAt: string;
            /**
             * Format: date-time
             * @description When the refresh token expires unless it is used before.
             */
            expiresAt: string;
            /** @description What the client called the device; absent if it said nothing. */
            deviceName?: string;
            /** @description What the client said of it at the sign-in; absent if it said nothing. */
            metadata?: {
                [key: string]: unknown;
            };
            /** @description Whether the access token of the request is from it. */
            current: boolean;
        };
        /**
         * @description The authorization that does not end with the others.
         * @enum {string}
         */
        KeptAuthorization: "current";
        /**
         * @description `ACTIVE`: its refresh token can be used. `REVOKED`: it has ended, and no token of it is active. `EXPIRED`: its
         *     refresh token was not used in time.
         * @enum {string}
         */
        AuthorizationState: "ACTIVE" | "REVOKED" | "EXPIRED";
        /**
         * @description Why it has ended; only where it is `REVOKED`. `CLIENT`: the client, or the internal client, revoked its refresh
         *     token. `REUSE`: a replaced refresh token was presented. `IDENTITY_DELETED`: its identity was deleted, and this one has
         *     the same id. `PASSWORD_CHANGED`: the password was set or removed.
         *     `CLIENT_DISABLED`: its client is not registered; it is active again if it is listed within seven days. `USER`,
         *     `OPERATOR`: it was ended here.
         * @enum {string}
         */
        RevocationReason: "CLIENT" | "REUSE" | "IDENTITY_DELETED" | "PASSWORD_CHANGED" | "CLIENT_DISABLED" | "USER" | "OPERATOR";
        /** @description Which parameters are needed depends on `grant_type`. Unknown parameters are ignored. */
        TokenRequest: {
            /**
             * @description One of password, refresh_token, phone_otp, auth, phone_otp_token, client_credentials, authorization_code.
             * @example auth
             */
            grant_type: string;
            /**
             * @description Phone, e-mail or id; only for grant_type=password.
             * @example ada@example.com
             */
            username?: string;
            /**
             * @description The password (grant_type=password) or the one-time code (grant_type=phone_otp).
             * @example correct horse battery staple
             */
            password?: string;
            /**
             * @description Only for grant_type=refresh_token.
             * @example gpr_AZ1xk0vXf3s...
             */
            refresh_token?: string;
            /**
             * @description Only for grant_type=phone_otp and grant_type=phone_otp_token.
             * @example +12025550123
             */
            phone?: string;
            /**
             * @description The identity's id; only for grant_type=auth.
             * @example 7f0d4c1e-usr
             */
            auth_id?: string;
            /**
             * @description A JWT confirming that the user passed the OTP check; only for grant_type=phone_otp_token.
             * @example eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJvdHAtdmVyaWZpZXIifQ.c2lnbmF0dXJl
             */
            otp_verification_token?: string;
            /**
             * @description The `authorization_code` of a challenge; only for grant_type=authorization_code.
             * @example gpc_SplxlOBeZQQYbYS6WxSbIA
             */
            code?: string;
            /**
             * @description The text of which the challenge was begun with the SHA-256 (RFC 7636 section 4.1); only for grant_type=authorization_code.
             * @example dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk
             */
            code_verifier?: string;
            /**
             * @description The organization that the client acts for, one of its `organizations`; only for grant_type=client_credentials. Absent: the client acts for itself.
             * @example org-42
             */
            organization?: string;
            /**
             * @description Space-separated; a part of what the client is permitted. Absent means all of it; spaces alone are `invalid_scope`.
             * @example profile
             */
            scope?: string;
            /**
             * @description What the client calls the device, for the list of authorizations; no control characters, and no marks of the
             *     direction of text. grant_type=refresh_token ignores it.
             * @example Ada's phone
             */
            device_name?: string;
            /**
             * @description A JSON object as text, with at most 16 members and 2 KiB, for the list of authorizations; it is in no token,
             *     no introspection and no event. grant_type=refresh_token ignores it.
             * @example {"app_version":"4.2.0"}
             */
            metadata?: string;
            client_id?: components["schemas"]["ClientIdInBody"];
            client_secret?: components["schemas"]["ClientSecretInBody"];
        };
        /** @description Which parameters are needed depends on the request. Unknown parameters are ignored. */
        ChallengeRequest: {
            /**
             * @description The client; needed to begin. Later it may be absent, or must be the one that has begun.
             * @example app
             */
            client_id?: string;
            /**
             * @description `code`; needed to begin.
             * @example code
             */
            response_type?: string;
            /**
             * @description The phone number, in international format; needed to begin.
             * @example +12025550123
             */
            login_hint?: string;
            /**
             * @description Space-separated; a part of what the client is permitted. Absent means all of it.
             * @example profile
             */
            scope?: string;
            /**
             * @description The SHA-256 of a random text, in base64url (RFC 7636 section 4.2); needed to begin.
             * @example E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM
             */
            code_challenge?: string;
            /**
             * @description `S256`; needed to begin.
             * @example S256
             */
            code_challenge_method?: string;
            /**
             * @description The session, as the response to the first request has it.
             * @example 4Zk3vJm1y0sQAZ1xk0vXf3sT5c1d7b3a9f003f2a51d
             */
            auth_session?: string;
            /**
             * @description The one-time code, as the user has typed it.
             * @example 482913
             */
            otp?: string;
        };
        /** @description What the token operation exchanges for a pair. */
        AuthorizationCode: {
            /** @description For grant_type=authorization_code. */
            authorization_code: string;
        };
        /**
         * @description What is needed next, or why there is no next. `auth_session`, `otp_required`, `auth_session_expires_in` and
         *     `resend_after` are there where `error` is `insufficient_authorization`.
         */
        ChallengeError: {
            error: components["schemas"]["ChallengeErrorCode"];
            /** @description What is wrong here, and what to do. */
            error_description: string;
            /** @description Names the session in the next requests. */
            auth_session?: string;
            /** @description True: the next request needs the one-time code. */
            otp_required?: boolean;
            /**
             * Format: int64
             * @description Seconds until the session expires.
             */
            auth_session_expires_in?: number;
            /**
             * Format: int64
             * @description Seconds until a new code may be asked for; until the session expires where it gets no other.
             */
            resend_after?: number;
        };
        /** @description An access token and the refresh token that replaces the pair. */
        TokenPair: {
            /** @description A JWT (RFC 9068), for calls to protected resources. */
            access_token: string;
            /** @description Opaque, for obtaining the next pair. */
            refresh_token: string;
            token_type: components["schemas"]["TokenType"];
            /**
             * Format: int64
             * @description Seconds until the access token expires.
             */
            expires_in: number;
            /**
             * Format: int64
             * @description Seconds until the refresh token expires.
             */
            refresh_expires_in: number;
            /** @description What the access token is for, space-separated (RFC 6749 section 5.1); absent where it has no scope. */
            scope?: string;
        };
        /**
         * @description How an access token is presented (RFC 6750).
         * @enum {string}
         */
        TokenType: "Bearer";
        /** @description The token in question. */
        TokenReference: {
            /**
             * @description The token.
             * @example eyJhbGciOiJSUzI1NiIsInR5cCI6ImF0K2p3dCJ9.eyJzdWIiOiI3ZjBkNGMxZS11c3IifQ.c2lnbmF0dXJl
             */
            token: string;
            /**
             * @description Accepted and not needed (RFC 7009, RFC 7662).
             * @example access_token
             */
            token_type_hint?: string;
            client_id?: components["schemas"]["ClientIdInBody"];
            client_secret?: components["schemas"]["ClientSecretInBody"];
        };
        /**
         * @description Only with `client_secret`, or of a client of the method `none`; ignored otherwise. An empty one is as if it were absent.
         * @example
         */
        ClientIdInBody: string;
        /**
         * @description For clients whose `clientAuthenticationMethods` list `client_secret_post`, instead of the Authorization
         *     header (RFC 6749 section 2.3.1). An empty one is as if it were absent.
         * @example
         */
        ClientSecretInBody: string;
        /**
         * @description Validity information. An inactive token has `active` and nothing else; an active one has all members
         *     but `scope` and `org_id`, which are absent where the token has none, and `userInfo` and `username`, which are absent
         *     where the client acts for no user (grant `client_credentials`). An active one also has `client_id` and
         *     `token_type`, which say the same as `clientId` and `tokenType` under their names in RFC 7662. They are
         *     described by a pattern, as in most languages the two of a pair would be one name.
         */
        Introspection: {
            /** @description Whether the token is valid. */
            active: boolean;
            /** @description The user that the token was issued to (auth id), or the client that acts for none. */
            sub?: string;
            /** @description Whom the token is meant for: the client's id, and the audiences that it is configured with. */
            aud?: string[];
            userInfo?: components["schemas"]["UserInfo"];
            /**
             * Format: int64
             * @description Unix time from which the token is valid.
             */
            nbf?: number;
            /**
             * Format: uri
             * @description URI of the issuer.
             */
            iss?: string;
            /**
             * Format: int64
             * @description Unix time of expiry.
             */
            exp?: number;
            /**
             * Format: int64
             * @description Unix time of issue.
             */
            iat?: number;
            /** @description Unique token identifier. */
            jti?: string;
            /** @description Client that requested the token. */
            clientId?: string;
            tokenType?: components["schemas"]["TokenType"];
            /** @description Space-separated; absent where the token has none. */
            scope?: string;
            /** @description The identity's id. */
            username?: string;
            /** @description The organization that the client acts for. */
            org_id?: string;
        } & {
            [key: string]: unknown;
        };
        /** @description The user. */
        UserInfo: {
            /** @description The user that the token was issued to. */
            userId: string;
        };
        /** @description Confirmation. */
        Revocation: {
            /** @description Confirmation that the token was revoked. */
            message: string;
        };
        /** @description A JSON Web Key Set (RFC 7517). */
        KeySet: {
            /** @description Public keys. */
            keys: components["schemas"]["JsonWebKey"][];
        };
        /** @description A public RSA key. */
        JsonWebKey: {
            /**
             * @description Key type.
             * @constant
             */
            kty: "RSA";
            /** @description Key id. */
            kid: string;
            /**
             * @description For signatures.
             * @constant
             */
            use: "sig";
            /**
             * @description The algorithm of the signatures.
             * @constant
             */
            alg: "RS256";
            /** @description Modulus. */
            n: string;
            /** @description Exponent. */
            e: string;
        };
        /** @description Authorization server metadata (RFC 8414 section 2). */
        ServerMetadata: {
            /**
             * Format: uri
             * @description The issuer.
             */
            issuer: string;
            /**
             * Format: uri
             * @description Where tokens are generated.
             */
            token_endpoint: string;
            /**
             * Format: uri
             * @description The public key set.
             */
            jwks_uri: string;
            /**
             * Format: uri
             * @description Where tokens are introspected.
             */
            introspection_endpoint: string;
            /**
             * Format: uri
             * @description Where tokens are revoked.
             */
            revocation_endpoint: string;
            /**
             * Format: uri
             * @description Where an app signs its user in; absent where `FIRST_PARTY_APPS` is off.
             */
            authorization_challenge_endpoint?: string;
            /** @description The grants. */
            grant_types_supported: string[];
            /** @description `code`, of the challenge; without it `none`, as there is no authorization endpoint. */
            response_types_supported: string[];
            /** @description `S256`; absent where `FIRST_PARTY_APPS` is off. */
            code_challenge_methods_supported?: string[];
            /** @description `ES256`; absent where `FIRST_PARTY_APPS` is off. */
            dpop_signing_alg_values_supported?: string[];
            /** @description `public`: `sub` is the same for every client. */
            subject_types_supported: string[];
            /** @description `RS256`, as access tokens are signed. OpenID Connect requires the member; there are no ID tokens. */
            id_token_signing_alg_values_supported: string[];
            /** @description Client authentication at the token endpoint. */
            token_endpoint_auth_methods_supported: string[];
            /** @description Client authentication at the introspection endpoint. */
            introspection_endpoint_auth_methods_supported: string[];
            /** @description Client authentication at the revocation endpoint. */
            revocation_endpoint_auth_methods_supported: string[];
            /** @description Scopes of all registered clients; absent if they have none. */
            scopes_supported?: string[];
            /**
             * Format: uri
             * @description The API reference.
             */
            service_documentation: string;
        };
        /** @description An error (RFC 9457). */
        Problem: {
            /**
             * Format: uri-reference
             * @description A URI reference that names the kind of problem; `about:blank` where the title says it all.
             */
            type: string;
            /** @description The kind of problem in words. */
            title: string;
            /** @description The HTTP status. */
            status: number;
            /** @description What is wrong here, and what to do. */
            detail: string;
            code: components["schemas"]["ProblemCode"];
            /** @description Names the request in the logs. */
            requestId: string;
            /** @description What is wrong with the input, place by place. */
            errors?: components["schemas"]["ProblemError"][];
        };
        /** @description Something wrong at one place of the input. */
        ProblemError: {
            /** @description JSON pointer into the request, beginning with /body, /path, /query or /header. */
            pointer: string;
            /** @description What is wrong there. */
            message: string;
        };
        /**
         * @description The closed list of problem codes, of the auth service and the push service together.
         * @enum {string}
         */
        ProblemCode: "invalid_request" | "unauthenticated" | "forbidden" | "not_found" | "identity_not_found" | "notification_not_found" | "dead_letter_not_found" | "method_not_allowed" | "not_acceptable" | "identity_id_taken" | "identity_phone_taken" | "identity_email_taken" | "idempotency_key_reused" | "notification_finished" | "content_too_large" | "unsupported_media_type" | "too_many_requests" | "internal_error" | "unavailable";
        /** @description An error (RFC 6749 section 5.2). */
        OAuthError: {
            error: components["schemas"]["OAuthErrorCode"];
            /**
             * @description What is wrong here, and what to do. What it quotes from the request is percent-encoded where RFC 6749 section
             *     5.2 does not permit its characters.
             */
            error_description: string;
        };
        /**
         * @description The closed list of error codes of the challenge.
         * @enum {string}
         */
        ChallengeErrorCode: "invalid_request" | "invalid_client" | "unauthorized_client" | "invalid_scope" | "insufficient_authorization" | "invalid_session" | "access_denied" | "invalid_dpop_proof" | "use_dpop_nonce" | "invalid_client_attestation" | "use_fresh_attestation" | "slow_down";
        /**
         * @description The closed list of OAuth error codes. `invalid_dpop_proof` and `use_dpop_nonce` (RFC 9449) are for clients of the
         *     method `none` alone, where a request has the header `DPoP`.
         * @enum {string}
         */
        OAuthErrorCode: "invalid_request" | "invalid_client" | "invalid_grant" | "unauthorized_client" | "unsupported_grant_type" | "invalid_scope" | "invalid_token" | "invalid_dpop_proof" | "use_dpop_nonce" | "slow_down" | "server_error" | "temporarily_unavailable";
    };
    responses: {
        /** @description Done. */
        NoContent: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                [name: string]: unknown;
            };
            content?: never;
        };
        /** @description The page; beyond the last authorization it is empty. */
        AuthorizationsListed: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Cache-Control": components["headers"]["NoStore"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["AuthorizationsPage"];
            };
        };
        /** @description The metadata. */
        DiscoveryDocument: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Cache-Control": components["headers"]["Public"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ServerMetadata"];
            };
        };
        /** @description The input is not valid; `errors` names each place. */
        BadRequest: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description Credentials are missing or wrong. */
        Unauthorized: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "WWW-Authenticate": components["headers"]["BasicChallenge"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The access token is missing, malformed, expired or revoked. */
        TokenUnauthorized: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "WWW-Authenticate": components["headers"]["BearerChallenge"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The access token does not have the scope `sessions`. */
        Forbidden: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "WWW-Authenticate": components["headers"]["BearerChallenge"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description There is no such identity. */
        NotFound: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The identity has no such authorization. */
        AuthorizationNotFound: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The path does not have this method. */
        MethodNotAllowed: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                Allow: components["headers"]["Allow"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The Accept header rules out JSON. */
        NotAcceptable: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description An identity with this id, phone number or e-mail address exists; `code` says which. */
        Conflict: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The body is over 64 KiB. */
        ContentTooLarge: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The body's media type is not one of the operation's, or the body is compressed or in another charset than UTF-8. */
        UnsupportedMediaType: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description Something went wrong inside. Nothing is said but the request id. */
        InternalServerError: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description A service that this one depends on does not answer, or more requests arrive than can be answered. */
        ServiceUnavailable: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Retry-After": components["headers"]["Retry-After"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The request, the client, the grant, the scope or the token is not valid; `error` says which. */
        OAuthBadRequest: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Cache-Control": components["headers"]["NoStore"];
                Pragma: components["headers"]["NoCache"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["OAuthError"];
            };
        };
        /** @description The request, the client, the grant or the scope is not valid; `error` says which. */
        OAuthTokenBadRequest: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Cache-Control": components["headers"]["NoStore"];
                Pragma: components["headers"]["NoCache"];
                /**
                 * @description The scheme that is expected; only where `error` is `invalid_client`.
                 * @example Basic realm="gatepost", charset="UTF-8"
                 */
                "WWW-Authenticate"?: string;
                "DPoP-Nonce": components["headers"]["DPoP-Nonce"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["OAuthError"];
            };
        };
        /** @description The request, the client, the proof or the session is not valid; `error` says which. */
        OAuthChallengeBadRequest: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Cache-Control": components["headers"]["NoStore"];
                Pragma: components["headers"]["NoCache"];
                "DPoP-Nonce": components["headers"]["DPoP-Nonce"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ChallengeError"];
            };
        };
        /**
         * @description A one-time code is needed, or the client must not begin: the phone number's region is not served
         *     (`access_denied`), or the attestation is missing or wrong (`invalid_client_attestation`) or has expired
         *     (`use_fresh_attestation`).
         */
        OAuthChallengeForbidden: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Cache-Control": components["headers"]["NoStore"];
                Pragma: components["headers"]["NoCache"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ChallengeError"];
            };
        };
        /** @description No code is sent now, as too many were, to this phone or from this address. */
        OAuthChallengeTooManyRequests: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Cache-Control": components["headers"]["NoStore"];
                Pragma: components["headers"]["NoCache"];
                "Retry-After": components["headers"]["Retry-After"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ChallengeError"];
            };
        };
        /** @description Credentials are missing or wrong, or do not permit this. */
        OAuthUnauthorized: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Cache-Control": components["headers"]["NoStore"];
                Pragma: components["headers"]["NoCache"];
                "WWW-Authenticate": components["headers"]["BasicChallenge"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["OAuthError"];
            };
        };
        /** @description The path does not have this method. */
        OAuthMethodNotAllowed: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Cache-Control": components["headers"]["NoStore"];
                Pragma: components["headers"]["NoCache"];
                Allow: components["headers"]["Allow"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["OAuthError"];
            };
        };
        /** @description The Accept header rules out JSON. */
        OAuthNotAcceptable: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Cache-Control": components["headers"]["NoStore"];
                Pragma: components["headers"]["NoCache"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["OAuthError"];
            };
        };
        /** @description The body is over 64 KiB. */
        OAuthContentTooLarge: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Cache-Control": components["headers"]["NoStore"];
                Pragma: components["headers"]["NoCache"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["OAuthError"];
            };
        };
        /** @description The body's media type is not one of the operation's, or the body is compressed or in another charset than UTF-8. */
        OAuthUnsupportedMediaType: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Cache-Control": components["headers"]["NoStore"];
                Pragma: components["headers"]["NoCache"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["OAuthError"];
            };
        };
        /** @description Too many failed attempts, for this account or by this client. */
        OAuthTooManyRequests: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Cache-Control": components["headers"]["NoStore"];
                Pragma: components["headers"]["NoCache"];
                "Retry-After": components["headers"]["Retry-After"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["OAuthError"];
            };
        };
        /** @description Something went wrong inside. Nothing is said but the request id. */
        OAuthInternalServerError: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Cache-Control": components["headers"]["NoStore"];
                Pragma: components["headers"]["NoCache"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["OAuthError"];
            };
        };
        /** @description A service that this one depends on does not answer, or more requests arrive than can be answered. */
        OAuthServiceUnavailable: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Cache-Control": components["headers"]["NoStore"];
                Pragma: components["headers"]["NoCache"];
                "Retry-After": components["headers"]["Retry-After"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["OAuthError"];
            };
        };
    };
    parameters: {
        /**
         * @description Identifier of the organization, as in the client's `organizations`.
         * @example org-42
         */
        OrganizationIdPath: string;
        /**
         * @description Identifier of the identity.
         * @example 7f0d4c1e-usr
         */
        IdentityIdPath: components["schemas"]["IdentityId"];
        /**
         * @description Identifier of the authorization.
         * @example 019a9f6e-5c1d-7b3a-9f00-3f2a51d0c111
         */
        AuthorizationIdPath: string;
        /** @description `true` leaves out what has ended or expired. */
        ActiveOnly: boolean;
        /** @description `next` of the page before. Absent: the first page. */
        After: string;
        /** @description Authorizations on a page, at most 100. More are cut to 100. */
        ListSize: number;
        /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
        RequestId: string;
        /** @description W3C trace context; logged, and passed on to the services that are called. */
        TraceParent: string;
        /**
         * @description The proof of the app's key (RFC 9449 section 4.2): a JWT of the type `dpop+jwt`, ES256, with the public key in its
         *     header and the claims `jti`, `htm`, `htu` and `iat`. `htu` is the address of the operation as the metadata have it.
         *     `iat` may be a minute off; otherwise a `nonce` of the server's stands in for it.
         */
        DPoP: string;
        /**
         * @description A JWT by the client's own back end, for the key of the proof (draft-ietf-oauth-attestation-based-client-auth). Needed
         *     to begin where the client has `attestationKeys`.
         */
        ClientAttestation: string;
        /** @description ETag of the copy that the caller holds. */
        IfNoneMatch: string;
    };
    requestBodies: never;
    headers: {
        /**
         * @description Names this request in the logs.
         * @example 0c6d3e2a
         */
        "X-Request-Id": string;
        /**
         * @description The response is not to be kept.
         * @example no-store
         */
        NoStore: "no-store";
        /**
         * @description The same for HTTP/1.0 caches.
         * @example no-cache
         */
        NoCache: "no-cache";
        /**
         * @description How long a copy may be kept.
         * @example public, max-age=300
         */
        Public: "public, max-age=300";
        /**
         * @description Changes when the keys change.
         * @example "kD0Vv2wO"
         */
        ETag: string;
        /**
         * @description The scheme that is expected.
         * @example Basic realm="gatepost", charset="UTF-8"
         */
        BasicChallenge: string;
        /**
         * @description The scheme that is expected, and what is wrong with the token that was sent (RFC 6750 section 3).
         * @example Bearer realm="gatepost", error="invalid_token"
         */
        BearerChallenge: string;
        /**
         * @description The methods of this path.
         * @example GET, HEAD, OPTIONS
         */
        Allow: string;
        /**
         * @description A value for the `nonce` of a proof, good for some minutes (RFC 9449 section 8); only where `error` is `use_dpop_nonce`.
         * @example Wk3vJm1y0sQAZ1xk0vXf3w
         */
        "DPoP-Nonce": string;
        /**
         * @description Seconds to wait before the next attempt.
         * @example 30
         */
        "Retry-After": number;
    };
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    createIdentity: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["IdentityCreation"];
            };
        };
        responses: {
            /** @description The identity as it was stored. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Cache-Control": components["headers"]["NoStore"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Identity"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["ContentTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    findIdentityByPhone: {
        parameters: {
            query: {
                /**
                 * @description Phone number in international format, as in `PhoneInput`. Encode the plus sign as `%2B`, or leave it
                 *     out; a leading space is read as the plus sign that was not encoded. Text that is no phone number is
                 *     bound to nobody: 404. A number that is stored is found, also where today's numbering plans do not have
                 *     it any more.
                 * @example +12025550123
                 */
                phone: string;
            };
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The identity, without its metadata. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Cache-Control": components["headers"]["NoStore"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FoundIdentity"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    getIdentity: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Identifier of the identity.
                 * @example 7f0d4c1e-usr
                 */
                id: components["parameters"]["IdentityIdPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The identity. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Cache-Control": components["headers"]["NoStore"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Identity"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    updateIdentity: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Identifier of the identity.
                 * @example 7f0d4c1e-usr
                 */
                id: components["parameters"]["IdentityIdPath"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["IdentityChange"];
            };
        };
        responses: {
            204: components["responses"]["NoContent"];
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            405: components["responses"]["MethodNotAllowed"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["ContentTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    deleteIdentity: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Identifier of the identity.
                 * @example 7f0d4c1e-usr
                 */
                id: components["parameters"]["IdentityIdPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            204: components["responses"]["NoContent"];
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            405: components["responses"]["MethodNotAllowed"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    setIdentityPassword: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Identifier of the identity.
                 * @example 7f0d4c1e-usr
                 */
                id: components["parameters"]["IdentityIdPath"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["IdentityPassword"];
            };
        };
        responses: {
            204: components["responses"]["NoContent"];
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            405: components["responses"]["MethodNotAllowed"];
            413: components["responses"]["ContentTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    removeIdentityPassword: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Identifier of the identity.
                 * @example 7f0d4c1e-usr
                 */
                id: components["parameters"]["IdentityIdPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            204: components["responses"]["NoContent"];
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            405: components["responses"]["MethodNotAllowed"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    clearIdentityAttempts: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Identifier of the identity.
                 * @example 7f0d4c1e-usr
                 */
                id: components["parameters"]["IdentityIdPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            204: components["responses"]["NoContent"];
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            405: components["responses"]["MethodNotAllowed"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    listAuthorizations: {
        parameters: {
            query?: {
                /** @description `true` leaves out what has ended or expired. */
                active?: components["parameters"]["ActiveOnly"];
                /** @description `next` of the page before. Absent: the first page. */
                after?: components["parameters"]["After"];
                /** @description Authorizations on a page, at most 100. More are cut to 100. */
                size?: components["parameters"]["ListSize"];
            };
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Identifier of the identity.
                 * @example 7f0d4c1e-usr
                 */
                id: components["parameters"]["IdentityIdPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["AuthorizationsListed"];
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    endAllAuthorizations: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Identifier of the identity.
                 * @example 7f0d4c1e-usr
                 */
                id: components["parameters"]["IdentityIdPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            204: components["responses"]["NoContent"];
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            405: components["responses"]["MethodNotAllowed"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    endAuthorization: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Identifier of the identity.
                 * @example 7f0d4c1e-usr
                 */
                id: components["parameters"]["IdentityIdPath"];
                /**
                 * @description Identifier of the authorization.
                 * @example 019a9f6e-5c1d-7b3a-9f00-3f2a51d0c111
                 */
                authorizationId: components["parameters"]["AuthorizationIdPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            204: components["responses"]["NoContent"];
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["AuthorizationNotFound"];
            405: components["responses"]["MethodNotAllowed"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    listOwnAuthorizations: {
        parameters: {
            query?: {
                /** @description `true` leaves out what has ended or expired. */
                active?: components["parameters"]["ActiveOnly"];
                /** @description `next` of the page before. Absent: the first page. */
                after?: components["parameters"]["After"];
                /** @description Authorizations on a page, at most 100. More are cut to 100. */
                size?: components["parameters"]["ListSize"];
            };
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["AuthorizationsListed"];
            400: components["responses"]["BadRequest"];
            401: components["responses"]["TokenUnauthorized"];
            403: components["responses"]["Forbidden"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    endAllOwnAuthorizations: {
        parameters: {
            query?: {
                /** @description `current` keeps the authorization that the access token is from. Absent: it ends too. */
                except?: components["schemas"]["KeptAuthorization"];
            };
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            204: components["responses"]["NoContent"];
            400: components["responses"]["BadRequest"];
            401: components["responses"]["TokenUnauthorized"];
            403: components["responses"]["Forbidden"];
            405: components["responses"]["MethodNotAllowed"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    endOwnAuthorization: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Identifier of the authorization.
                 * @example 019a9f6e-5c1d-7b3a-9f00-3f2a51d0c111
                 */
                authorizationId: components["parameters"]["AuthorizationIdPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            204: components["responses"]["NoContent"];
            400: components["responses"]["BadRequest"];
            401: components["responses"]["TokenUnauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["AuthorizationNotFound"];
            405: components["responses"]["MethodNotAllowed"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    endOrganizationAuthorizations: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Identifier of the organization, as in the client's `organizations`.
                 * @example org-42
                 */
                id: components["parameters"]["OrganizationIdPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            204: components["responses"]["NoContent"];
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            405: components["responses"]["MethodNotAllowed"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    generateTokens: {
        parameters: {
            query?: never;
            header?: {
                /**
                 * @description The proof of the app's key (RFC 9449 section 4.2): a JWT of the type `dpop+jwt`, ES256, with the public key in its
                 *     header and the claims `jti`, `htm`, `htu` and `iat`. `htu` is the address of the operation as the metadata have it.
                 *     `iat` may be a minute off; otherwise a `nonce` of the server's stands in for it.
                 */
                DPoP?: components["parameters"]["DPoP"];
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/x-www-form-urlencoded": components["schemas"]["TokenRequest"];
            };
        };
        responses: {
            /** @description A new token pair. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Cache-Control": components["headers"]["NoStore"];
                    Pragma: components["headers"]["NoCache"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TokenPair"];
                };
            };
            400: components["responses"]["OAuthTokenBadRequest"];
            405: components["responses"]["OAuthMethodNotAllowed"];
            406: components["responses"]["OAuthNotAcceptable"];
            413: components["responses"]["OAuthContentTooLarge"];
            415: components["responses"]["OAuthUnsupportedMediaType"];
            429: components["responses"]["OAuthTooManyRequests"];
            500: components["responses"]["OAuthInternalServerError"];
            503: components["responses"]["OAuthServiceUnavailable"];
        };
    };
    challengeAuthorization: {
        parameters: {
            query?: never;
            header?: {
                /**
                 * @description The proof of the app's key (RFC 9449 section 4.2): a JWT of the type `dpop+jwt`, ES256, with the public key in its
                 *     header and the claims `jti`, `htm`, `htu` and `iat`. `htu` is the address of the operation as the metadata have it.
                 *     `iat` may be a minute off; otherwise a `nonce` of the server's stands in for it.
                 */
                DPoP?: components["parameters"]["DPoP"];
                /**
                 * @description A JWT by the client's own back end, for the key of the proof (draft-ietf-oauth-attestation-based-client-auth). Needed
                 *     to begin where the client has `attestationKeys`.
                 */
                "OAuth-Client-Attestation"?: components["parameters"]["ClientAttestation"];
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/x-www-form-urlencoded": components["schemas"]["ChallengeRequest"];
            };
        };
        responses: {
            /** @description The code was right. `authorization_code` is good for a minute, and once. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Cache-Control": components["headers"]["NoStore"];
                    Pragma: components["headers"]["NoCache"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AuthorizationCode"];
                };
            };
            400: components["responses"]["OAuthChallengeBadRequest"];
            403: components["responses"]["OAuthChallengeForbidden"];
            405: components["responses"]["OAuthMethodNotAllowed"];
            406: components["responses"]["OAuthNotAcceptable"];
            413: components["responses"]["OAuthContentTooLarge"];
            415: components["responses"]["OAuthUnsupportedMediaType"];
            429: components["responses"]["OAuthChallengeTooManyRequests"];
            500: components["responses"]["OAuthInternalServerError"];
            503: components["responses"]["OAuthServiceUnavailable"];
        };
    };
    introspectToken: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/x-www-form-urlencoded": components["schemas"]["TokenReference"];
            };
        };
        responses: {
            /** @description Validity information. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Cache-Control": components["headers"]["NoStore"];
                    Pragma: components["headers"]["NoCache"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Introspection"];
                };
            };
            400: components["responses"]["OAuthBadRequest"];
            401: components["responses"]["OAuthUnauthorized"];
            405: components["responses"]["OAuthMethodNotAllowed"];
            406: components["responses"]["OAuthNotAcceptable"];
            413: components["responses"]["OAuthContentTooLarge"];
            415: components["responses"]["OAuthUnsupportedMediaType"];
            500: components["responses"]["OAuthInternalServerError"];
            503: components["responses"]["OAuthServiceUnavailable"];
        };
    };
    revokeToken: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/x-www-form-urlencoded": components["schemas"]["TokenReference"];
            };
        };
        responses: {
            /** @description The token is revoked, everywhere, from now on. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Cache-Control": components["headers"]["NoStore"];
                    Pragma: components["headers"]["NoCache"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Revocation"];
                };
            };
            400: components["responses"]["OAuthBadRequest"];
            401: components["responses"]["OAuthUnauthorized"];
            405: components["responses"]["OAuthMethodNotAllowed"];
            406: components["responses"]["OAuthNotAcceptable"];
            413: components["responses"]["OAuthContentTooLarge"];
            415: components["responses"]["OAuthUnsupportedMediaType"];
            500: components["responses"]["OAuthInternalServerError"];
            503: components["responses"]["OAuthServiceUnavailable"];
        };
    };
    getKeySet: {
        parameters: {
            query?: never;
            header?: {
                /** @description ETag of the copy that the caller holds. */
                "If-None-Match"?: components["parameters"]["IfNoneMatch"];
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The key set. It is also what an `Accept` of `application/jwk-set+json` (RFC 7517) asks for. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Cache-Control": components["headers"]["Public"];
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeySet"];
                };
            };
            /** @description The key set is still the one with the ETag that was sent. */
            304: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Cache-Control": components["headers"]["Public"];
                    ETag: components["headers"]["ETag"];
                    [name: string]: unknown;
                };
                content?: never;
            };
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
        };
    };
    getOpenIdConfiguration: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["DiscoveryDocument"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
        };
    };
    getAuthorizationServerMetadata: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["DiscoveryDocument"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
        };
    };
}
