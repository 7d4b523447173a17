/**
 * Who calls: the access token of the Authorization header, found to be signed by the identity provider, not
 * expired, not revoked, and issued to the application that the operation is for.
 */
import type { Clock } from "../../platform/base/clock.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import { wrongApplication } from "../errors.ts";
import { createVerifyAccessToken, type TokenClaims } from "./access-token.ts";
import { createIntrospectionClient } from "./introspection-client.ts";
import { createKeySet } from "./key-set.ts";

/**
 * Callers by their Authorization header; undefined where it is missing or its token is not good.
 * Each throws `forbidden` for a good token of another application, and `unavailable` where what decides
 * cannot be asked.
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
  /** Where revocation is asked about; undefined: it is not. */
  readonly security: { readonly url: string; readonly apiKey: string } | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** RFC 6750 section 2.1, with one space; the scheme is told without regard to case (RFC 9110 section 11.1). */
const bearer = /^bearer ([A-Za-z0-9._~+/-]+=*)$/i;

/** `close` ends the connection to the service that is asked. */
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
