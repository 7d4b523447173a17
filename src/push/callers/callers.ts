/**
 * Authenticates callers by the access token of the Authorization header: the identity provider must have signed it,
 * it must be neither expired nor revoked, and its client must be the application that the operation is for.
 */
import type { Clock } from "../../platform/base/clock.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import { wrongApplication } from "../errors.ts";
import { createVerifyAccessToken, type TokenClaims } from "./access-token.ts";
import { createIntrospectionClient } from "./introspection-client.ts";
import { createKeySet } from "./key-set.ts";

/**
 * Authenticates callers by their Authorization header; undefined if it is missing or its token is not valid. Each
 * method throws `forbidden` for a valid token of another application, and `unavailable` if the identity provider or
 * the introspection service cannot be reached.
 */
export interface Callers {
  /** A user in the users' application. */
  user(authorization: string | undefined): Promise<{ userId: string; clientId: string } | undefined>;
  /** The back office. */
  backoffice(authorization: string | undefined): Promise<{ clientId: string } | undefined>;
}

interface Dependencies {
  /** The `iss` of tokens. */
  readonly issuer: string;
  readonly userAppClientId: string;
  readonly backofficeClientId: string;
  /** The service that introspects tokens; undefined: revocation is not checked. */
  readonly security: { readonly url: string; readonly apiKey: string } | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** RFC 6750 section 2.1, with one space; the scheme is case-insensitive (RFC 9110 section 11.1). */
const bearer = /^bearer ([A-Za-z0-9._~+/-]+=*)$/i;

/** `close` ends the connection to the introspection service. */
export function createCallers(dependencies: Dependencies): Callers & { close(): void } {
  const { issuer, userAppClientId, backofficeClientId, security, clock, logger } = dependencies;
  const verify = createVerifyAccessToken({ issuer, clock, keySet: createKeySet({ issuer, clock, logger }) });
  const introspection = security && createIntrospectionClient(security.url, security.apiKey);

  async function claimsOf(authorization: string | undefined): Promise<TokenClaims | undefined> {
    const [, token] = bearer.exec(authorization ?? "") ?? [];
    const claims = token === undefined ? undefined : await verify(token);
    if (token === undefined || !claims || !introspection) return claims;
    const active = await introspection.introspect(token);
    const isSame = active?.sub === claims.sub && active.clientId === claims.clientId;
    return isSame ? claims : undefined;
  }

  async function callerOf(
    authorization: string | undefined,
    clientId: string,
  ): Promise<TokenClaims | undefined> {
    const claims = await claimsOf(authorization);
    if (claims && claims.clientId !== clientId) throw wrongApplication();
    return claims;
  }

  return {
    async user(authorization) {
      const claims = await callerOf(authorization, userAppClientId);
      return claims && { userId: claims.sub, clientId: claims.clientId };
    },
    async backoffice(authorization) {
      const claims = await callerOf(authorization, backofficeClientId);
      return claims && { clientId: claims.clientId };
    },
    close: () => introspection?.close(),
  };
}
