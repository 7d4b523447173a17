import { allGrantTypes, type ClientRegistration, secretGrantTypes } from "../client-settings.ts";

/**
 * Metadata of this server (RFC 8414 section 2, OpenID Connect Discovery 1.0 section 3; it has no authorization
 * endpoint).
 */
export function serverMetadata(
  issuer: string,
  clients: readonly ClientRegistration[],
  firstPartyApps = false,
) {
  const scopes = [...new Set(clients.flatMap((client) => client.scopes))].sort();
  // The internal client, which is not listed, uses Basic.
  const listed = clients.flatMap(({ clientAuthenticationMethods }) => clientAuthenticationMethods);
  const withSecret = [...new Set(["client_secret_basic", ...listed.filter((method) => method !== "none")])];
  const authenticationMethods = firstPartyApps ? [...withSecret, "none"] : withSecret;
  return {
    issuer,
    token_endpoint: `${issuer}/oauth2/v1/tokens`,
    jwks_uri: `${issuer}/v1/jwks`,
    introspection_endpoint: `${issuer}/oauth2/v1/introspect`,
    revocation_endpoint: `${issuer}/oauth2/v1/revoke`,
    authorization_challenge_endpoint: firstPartyApps ? `${issuer}/oauth2/v1/authorize-challenge` : undefined,
    grant_types_supported: [...(firstPartyApps ? allGrantTypes : secretGrantTypes)],
    // RFC 8414 requires the member. "none" is the response type without a code or a token (OAuth 2.0 Multiple Response
    // Type Encoding Practices section 4), and so the one that promises nothing.
    response_types_supported: [firstPartyApps ? "code" : "none"],
    code_challenge_methods_supported: firstPartyApps ? ["S256"] : undefined,
    dpop_signing_alg_values_supported: firstPartyApps ? ["ES256"] : undefined,
    // `sub` is the same for every client.
    subject_types_supported: ["public"],
    id_token_signing_alg_values_supported: ["RS256"],
    token_endpoint_auth_methods_supported: authenticationMethods,
    introspection_endpoint_auth_methods_supported: withSecret,
    revocation_endpoint_auth_methods_supported: authenticationMethods,
    // RFC 8414 section 3.2: a list without elements is left out.
    scopes_supported: scopes.length > 0 ? scopes : undefined,
    service_documentation: `${issuer}/docs`,
  };
}
