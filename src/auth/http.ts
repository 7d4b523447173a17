/** The operations of openapi/auth.yaml: decode, authorise, one call, encode. */
import type { Hono } from "hono";
import type { components, operations } from "../../gen/openapi/auth.ts";
import { invalidInput } from "../platform/base/errors.ts";
import { type Binding, bindContract } from "../platform/openapi/bind.ts";
import { matchesEntityTag } from "../platform/openapi/entity-tag.ts";
import type {
  BodySecurityHandler,
  Call,
  Declared,
  Handlers,
  SecurityHandler,
} from "../platform/openapi/handlers.ts";
import type { Authenticator } from "./clients/authenticate-client.ts";
import { type Caller, mayIntrospect } from "./clients/client.ts";
import { identityNotFound, invalidClient } from "./errors.ts";
import type { GenerateTokens } from "./grants/generate-tokens.ts";
import type { Identities } from "./identities/identities.ts";
import { authenticationTypesOf, type Identity } from "./identities/identity.ts";
import type { KeyStore } from "./keys/key-store.ts";
import type { Guessing } from "./limits/guessing.ts";
import type { Introspect, Introspection } from "./tokens/introspect.ts";
import type { Revoke } from "./tokens/revoke.ts";

type Schemas = components["schemas"];

interface Dependencies {
  readonly authenticator: Authenticator;
  readonly identities: Identities;
  readonly guessing: Guessing;
  readonly generateTokens: GenerateTokens;
  readonly introspect: Introspect;
  readonly revoke: Revoke;
  readonly keys: KeyStore;
  readonly metadata: Schemas["ServerMetadata"];
}

/** The document bound to its handlers. */
export function authHttp(
  dependencies: Dependencies,
  binding: Pick<Binding<operations, Caller>, "document" | "logger" | "observer" | "validateResponses">,
): Hono {
  return bindContract<operations, Caller>({
    ...binding,
    service: "auth",
    handlers: authHandlers(dependencies),
    security: authSecurity(dependencies.authenticator),
    bodySecurity: oauthCaller(dependencies.authenticator),
  });
}

/** The security schemes of the document. */
function authSecurity(authenticator: Authenticator): Record<string, SecurityHandler<Caller>> {
  return {
    InternalClient: ({ header }) => authenticator.internal(header("authorization")),
    RegisteredClient: ({ header }) => authenticator.client(header("authorization")),
    PlatformApiKey: ({ header }) => authenticator.platform(header("x-api-key")),
  };
}

function authHandlers(dependencies: Dependencies): Handlers<operations, Caller> {
  const { identities, guessing, generateTokens, introspect, revoke, keys, metadata } = dependencies;
  return {
    async createIdentity({ body: { id, ...fields } }) {
      return { status: 200, body: identityBody(await identities.create(id, fields)) };
    },
    async findIdentityByPhone({ query: { phone } }) {
      const identity = await identities.findByPhone(phone);
      if (!identity) throw identityNotFound("phone number");
      const { metadata: _left, authenticationTypes: _out, ...found } = identityBody(identity);
      return { status: 200, body: found };
    },
    async getIdentity({ path: { id } }) {
      return { status: 200, body: identityBody(await identities.get(id)) };
    },
    async updateIdentity({ path, body: { id, ...fields } }) {
      if (id !== undefined && id !== path.id) {
        throw invalidInput([{ pointer: "/body/id", message: "differs from the id in the path" }]);
      }
      await identities.update(path.id, fields);
      return { status: 204 };
    },
    async deleteIdentity({ path: { id } }) {
      await identities.delete(id);
      return { status: 204 };
    },
    async setIdentityPassword({ path: { id }, body: { password } }) {
      await identities.setPassword(id, password);
      return { status: 204 };
    },
    async removeIdentityPassword({ path: { id } }) {
      await identities.setPassword(id, null);
      return { status: 204 };
    },
    async clearIdentityAttempts({ path: { id } }) {
      await identities.get(id);
      await guessing.unlock(id);
      return { status: 204 };
    },
    async generateTokens({ body }, call) {
      return { status: 200, body: await generateTokens(authenticated(call), body, call.context) };
    },
    async introspectToken({ body }, call) {
      if (!mayIntrospect(authenticated(call))) throw invalidClient();
      return { status: 200, body: introspectionBody(await introspect(body.token)) };
    },
    async revokeToken({ body }, call) {
      await revoke(authenticated(call), body.token);
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

/** The caller, whom the binding has found before it called the handler. */
function authenticated({ caller }: Call<Caller>): Caller {
  return caller ?? refuse();
}

/**
 * The caller of an OAuth operation, by its headers or by the credentials in the body; both at once are refused
 * (RFC 6749 section 2.3).
 */
function oauthCaller(authenticator: Authenticator): BodySecurityHandler<Caller> {
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
    return caller ?? refuse();
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

function identityBody(identity: Identity): Schemas["Identity"] {
  const { id, phone, email, metadata } = identity;
  return {
    id,
    phone,
    ...(email !== null && { email }),
    ...(metadata !== null && { metadata }),
    authenticationTypes: authenticationTypesOf(identity),
  };
}

/**
 * The response for an active token. The document has one schema for active and inactive tokens, which requires only
 * `active`, and describes the names of RFC 7662 by a pattern.
 */
type ActiveBody = Required<Omit<Declared<Schemas["Introspection"]>, "active" | "scope">> & {
  readonly active: true;
  readonly scope?: string;
  readonly client_id: string;
  readonly token_type: Schemas["TokenType"];
};

function introspectionBody(result: Introspection): ActiveBody | { readonly active: false } {
  if (!result.active) return { active: false };
  const { sub, aud, nbf, iss, exp, iat, jti, clientId, scope } = result;
  return {
    active: true,
    sub,
    aud: [...aud],
    userInfo: { userId: sub },
    nbf,
    iss,
    exp,
    iat,
    jti,
    clientId,
    tokenType: "Bearer",
    client_id: clientId,
    token_type: "Bearer",
    ...(scope !== undefined && { scope }),
    username: sub,
  };
}
