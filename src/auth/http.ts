/** The operations of openapi/auth.yaml: decode, authorise, one call, encode. */
import type { components, operations } from "../../gen/openapi/auth.ts";
import { invalidInput } from "../platform/base/errors.ts";
import type { RequestOrigin } from "../platform/messaging/outbox.ts";
import { type Binding, type BoundContract, bindContract } from "../platform/openapi/bind.ts";
import { matchesEntityTag } from "../platform/openapi/entity-tag.ts";
import {
  type BodySecurityHandler,
  type Call,
  type Handlers,
  nothingElse,
  type SecurityHandler,
  type Stated,
} from "../platform/openapi/handlers.ts";
import type { ChallengeAuthorization } from "./challenge/challenge.ts";
import { type Authenticator, type Caller, requireIntrospection } from "./clients/authenticate-client.ts";
import { identityNotFound, invalidClient, noPublicClient } from "./errors.ts";
import type { GenerateTokens } from "./grants/generate-tokens.ts";
import type { Identities } from "./identities/identities.ts";
import { authenticationTypesOf, type Identity } from "./identities/identity.ts";
import type { KeyStore } from "./keys/key-store.ts";
import type { Guessing } from "./limits/guessing.ts";
import type { AccessTokenClaims } from "./tokens/access-token.ts";
import { authenticateUser, type UserCaller } from "./tokens/authenticate-user.ts";
import type { Introspect } from "./tokens/introspect.ts";
import type { Revoke } from "./tokens/revoke.ts";
import type { UserAuthorizations } from "./tokens/user-authorizations.ts";

type Schemas = components["schemas"];

/** Who calls an operation: a client, or a user about himself. */
type AnyCaller = Caller | UserCaller;

interface Dependencies {
  readonly authenticator: Authenticator;
  readonly identities: Identities;
  readonly authorizations: UserAuthorizations;
  readonly guessing: Guessing;
  readonly generateTokens: GenerateTokens;
  readonly introspect: Introspect;
  readonly revoke: Revoke;
  readonly endOrganization: (id: string, origin: RequestOrigin) => Promise<void>;
  readonly keys: KeyStore;
  readonly metadata: Stated<Schemas["ServerMetadata"]>;
  /** Undefined: apps without a secret are not served. */
  readonly challenge: ChallengeAuthorization | undefined;
}

/** The document bound to its handlers. */
export function authHttp(
  dependencies: Dependencies,
  binding: Pick<
    Binding<operations, AnyCaller>,
    "document" | "logger" | "observer" | "validateResponses" | "callerAddress"
  >,
): BoundContract {
  return bindContract<operations, AnyCaller>({
    ...binding,
    service: "auth",
    handlers: authHandlers(dependencies),
    security: authSecurity(dependencies),
    bodySecurity: oauthCaller(dependencies.authenticator),
  });
}

/** The security schemes of the document. */
function authSecurity({
  authenticator,
  introspect,
}: Pick<Dependencies, "authenticator" | "introspect">): Record<string, SecurityHandler<AnyCaller>> {
  return {
    UserToken: ({ header }) => authenticateUser(introspect, header("authorization")),
    InternalClient: ({ header }) => authenticator.internal(header("authorization")),
    RegisteredClient: ({ header }) => authenticator.client(header("authorization")),
    PlatformApiKey: ({ header }) => authenticator.platform(header("x-api-key")),
  };
}

function authHandlers(dependencies: Dependencies): Handlers<operations, AnyCaller> {
  const { identities, authorizations, guessing, challenge, generateTokens, introspect, revoke } =
    dependencies;
  const { endOrganization, keys, metadata } = dependencies;
  return {
    async createIdentity({ body: { id, phone, email, metadata, ...rest } }) {
      nothingElse(rest);
      return { status: 200, body: identityBody(await identities.create(id, { phone, email, metadata })) };
    },
    async findIdentityByPhone({ query: { phone: sought, ...rest } }) {
      nothingElse(rest);
      const identity = await identities.findByPhone(sought);
      if (!identity) throw identityNotFound("phone number");
      const { id, phone, email } = identityBody(identity);
      return { status: 200, body: { id, phone, email } };
    },
    async getIdentity({ path: { id } }) {
      return { status: 200, body: identityBody(await identities.get(id)) };
    },
    async updateIdentity({ path, body: { id, phone, email, metadata, ...rest } }) {
      nothingElse(rest);
      if (id !== undefined && id !== path.id) {
        throw invalidInput([{ pointer: "/body/id", message: "differs from the id in the path" }]);
      }
      await identities.update(path.id, { phone, email, metadata });
      return { status: 204 };
    },
    async deleteIdentity({ path: { id } }, call) {
      await identities.delete(id, originOf(call));
      return { status: 204 };
    },
    async setIdentityPassword({ path: { id }, body: { password, ...rest } }, call) {
      nothingElse(rest);
      await identities.setPassword(id, password, originOf(call));
      return { status: 204 };
    },
    async removeIdentityPassword({ path: { id } }, call) {
      await identities.setPassword(id, null, originOf(call));
      return { status: 204 };
    },
    async clearIdentityAttempts({ path: { id } }) {
      await guessing.unlock(await identities.get(id));
      return { status: 204 };
    },
    async listAuthorizations({ path: { id }, query: { active, after, size, ...rest } }) {
      nothingElse(rest);
      await identities.get(id);
      return { status: 200, body: pageBody(await authorizations.list(id, { active, after, size })) };
    },
    async endAllAuthorizations({ path: { id } }, call) {
      await identities.endAuthorizations(id, "OPERATOR", originOf(call));
      return { status: 204 };
    },
    async endAuthorization({ path: { id, authorizationId } }, call) {
      await authorizations.end(id, authorizationId, "OPERATOR", originOf(call));
      return { status: 204 };
    },
    async listOwnAuthorizations({ query: { active, after, size, ...rest } }, call) {
      nothingElse(rest);
      const { identityId, authorizationId } = userOf(call);
      const page = await authorizations.list(identityId, { active, after, size });
      return { status: 200, body: pageBody(page, authorizationId) };
    },
    async endAllOwnAuthorizations({ query: { except, ...rest } }, call) {
      nothingElse(rest);
      const { identityId, authorizationId } = userOf(call);
      const kept = except === "current" ? authorizationId : undefined;
      await identities.endAuthorizations(identityId, "USER", originOf(call), kept);
      return { status: 204 };
    },
    async endOwnAuthorization({ path: { authorizationId } }, call) {
      await authorizations.end(userOf(call).identityId, authorizationId, "USER", originOf(call));
      return { status: 204 };
    },
    async endOrganizationAuthorizations({ path: { id } }, call) {
      await endOrganization(id, originOf(call));
      return { status: 204 };
    },
    async generateTokens({ body }, call) {
      const { grant_type, username, password, refresh_token, phone, auth_id, ...others } = parametersOf(body);
      const { otp_verification_token, code, code_verifier, organization, ...more } = others;
      const { scope, device_name, metadata, ...rest } = more;
      nothingElse(rest);
      const request = { grant_type, username, password, refresh_token, phone, auth_id };
      const further = { otp_verification_token, code, code_verifier, organization };
      const parameters = { ...request, ...further, scope, device_name, metadata };
      const proof = call.header("dpop");
      const pair = await generateTokens(authenticated(call), parameters, call.context, proof);
      return { status: 200, body: pair };
    },
    async challengeAuthorization({ body }, { header, address }) {
      const { client_id, response_type, login_hint, scope, auth_session, otp, ...others } = body;
      const { code_challenge, code_challenge_method, ...rest } = others;
      nothingElse(rest);
      if (!challenge) throw noPublicClient();
      const pkce = { code_challenge, code_challenge_method };
      const authorization_code = await challenge({
        parameters: { client_id, response_type, login_hint, scope, auth_session, otp, ...pkce },
        proof: header("dpop"),
        attestation: header("oauth-client-attestation"),
        address: address(),
      });
      return { status: 200, body: { authorization_code } };
    },
    async introspectToken({ body }, call) {
      const { token, token_type_hint: _notNeeded, ...rest } = parametersOf(body);
      nothingElse(rest);
      requireIntrospection(authenticated(call));
      return { status: 200, body: introspectionBody(await introspect(token)) };
    },
    async revokeToken({ body }, call) {
      const { token, token_type_hint: _notNeeded, ...rest } = parametersOf(body);
      nothingElse(rest);
      await revoke(authenticated(call), token, originOf(call));
      return { status: 200, body: { message: "The token has been revoked." } };
    },
    async getKeySet(_request, { header }) {
      const headers = { ETag: keys.etag };
      if (matchesEntityTag(header("if-none-match"), keys.etag)) return { status: 304, headers };
      return { status: 200, headers, body: keys.keySet };
    },
    getOpenIdConfiguration: async () => ({ status: 200, body: metadata }),
    getAuthorizationServerMetadata: async () => ({ status: 200, body: metadata }),
  };
}

/** The client that calls, whom the binding has found before it called the handler. */
function authenticated({ caller }: Call<AnyCaller>): Caller {
  return caller === undefined || caller.kind === "user" ? refuse() : caller;
}

/** The user who calls. */
function userOf({ caller }: Call<AnyCaller>): UserCaller {
  return caller?.kind === "user" ? caller : refuse();
}

/** By which request an event comes to be, and who has sent it. */
function originOf({ context: { requestId }, caller }: Call<AnyCaller>): RequestOrigin {
  return { requestId, caller: (caller ?? refuse()).clientId };
}

/** The parameters of an OAuth operation without those that say who calls: {@link oauthCaller} has read them. */
function parametersOf<Body extends Credentials>({
  client_id: _id,
  client_secret: _secret,
  ...parameters
}: Body) {
  return parameters;
}

/**
 * The caller of an OAuth operation, by its headers or by the credentials in the body; both at once are refused
 * (RFC 6749 section 2.3).
 */
function oauthCaller(authenticator: Authenticator): BodySecurityHandler<AnyCaller> {
  return (body, { caller, header }) => {
    const { client_id: id, client_secret: secret, client_assertion: assertion }: Credentials = Object(body);
    const inBody = secret !== undefined ? "client_secret" : assertion !== undefined && "client_assertion";
    if (inBody && (header("authorization") ?? header("x-api-key")) !== undefined) {
      const message =
        "authenticates the client a second time; send credentials in the headers or in the body";
      throw invalidInput([{ pointer: `/body/${inBody}`, message }]);
    }
    if (id && secret && typeof id === "string" && typeof secret === "string")
      return authenticator.posted(id, secret).then((found) => found ?? refuse());
    if (caller) return caller;
    const isAlone = !secret && !assertion && (header("authorization") ?? header("x-api-key")) === undefined;
    if (!isAlone || !id || typeof id !== "string") return refuse();
    return authenticator.publicClient(id).then((found) => found ?? refuse());
  };
}

/** What a body may hold, before it is validated. */
interface Credentials {
  readonly client_id?: unknown;
  readonly client_secret?: unknown;
  readonly client_assertion?: unknown;
}

function refuse(): never {
  throw invalidClient();
}

function identityBody(identity: Identity): Stated<Schemas["Identity"]> {
  const { id, phone, email, metadata } = identity;
  return {
    id,
    phone,
    email: email ?? undefined,
    metadata: metadata ?? undefined,
    authenticationTypes: authenticationTypesOf(identity),
  };
}

/** @param currentId the authorization of the caller's token; undefined: the caller is no user */
function pageBody(
  { content, hasNext }: Awaited<ReturnType<UserAuthorizations["list"]>>,
  currentId?: string,
): Stated<Schemas["AuthorizationsPage"]> {
  return {
    content: content.map(({ createdAt, refreshedAt, expiresAt, reason, deviceName, metadata, ...one }) => ({
      ...one,
      reason: reason ?? undefined,
      registeredAt: createdAt.toISOString(),
      refreshedAt: refreshedAt.toISOString(),
      expiresAt: expiresAt.toISOString(),
      deviceName: deviceName ?? undefined,
      metadata: metadata ?? undefined,
      current: one.id === currentId,
    })),
    next: hasNext ? content.at(-1)?.id : undefined,
  };
}

/** The document has one schema for active and inactive tokens, which requires only `active`. */
type IntrospectionBody = Stated<Schemas["Introspection"]>;

const inactiveBody: IntrospectionBody = {
  active: false,
  sub: undefined,
  aud: undefined,
  userInfo: undefined,
  nbf: undefined,
  iss: undefined,
  exp: undefined,
  iat: undefined,
  jti: undefined,
  clientId: undefined,
  tokenType: undefined,
  scope: undefined,
  username: undefined,
  org_id: undefined,
};

function introspectionBody(claims: AccessTokenClaims | undefined): IntrospectionBody {
  if (!claims) return inactiveBody;
  const { sub, aud, nbf, iss, exp, iat, jti, client_id: clientId, scope, gty, org_id } = claims;
  const userId = gty === undefined ? sub : undefined;
  return {
    active: true,
    sub,
    aud,
    userInfo: userId === undefined ? undefined : { userId },
    nbf,
    iss,
    exp,
    iat,
    jti,
    clientId,
    tokenType: "Bearer",
    // The names of RFC 7662, which the document describes by a pattern.
    client_id: clientId,
    token_type: "Bearer",
    scope,
    username: userId,
    org_id,
  };
}
