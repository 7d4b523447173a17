/**
 * Authenticates callers by their access token, which is neither expired nor revoked, and whose client is the
 * application that the operation is for.
 */
import type { Clock } from "../../platform/base/clock.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import { noUser, wrongApplication } from "../errors.ts";
import { createVerifyAccessToken, type TokenClaims } from "./access-token.ts";
import {
  createIntrospectionClient,
  type Introspection,
  RefusedCredentialsError,
} from "./introspection-client.ts";
import { createIntrospectionEndpoint, type IntrospectionCredentials } from "./introspection-endpoint.ts";
import { createKeySet } from "./key-set.ts";

/** A user in the users' application. */
interface UserCaller {
  readonly userId: string;
  readonly clientId: string;
  /** The authorization of the user's token; undefined: the token does not say. */
  readonly authorizationId: string | undefined;
}

/**
 * Authenticates callers by their Authorization header; undefined if it is missing or its token is not valid. Each
 * method throws `forbidden` for a valid token of another application, and `unavailable` if the identity provider or
 * the introspection service cannot be reached.
 */
export interface Callers {
  /** Authenticates a user in the users' application. */
  user(authorization: string | undefined): Promise<UserCaller | undefined>;
  /** Authenticates the back office. */
  backoffice(authorization: string | undefined): Promise<{ clientId: string } | undefined>;
}

interface Dependencies {
  /** The `iss` of tokens. */
  readonly issuer: string;
  /** The audience that `aud` must name; undefined: any, and only tokens of the type at+jwt are accepted. */
  readonly audience: string | undefined;
  readonly userAppClientIds: readonly string[];
  readonly backofficeClientId: string;
  /**
   * The service that introspects tokens: the platform's over gRPC, or the issuer itself, with credentials of ours.
   * Undefined: revocation is not checked.
   */
  readonly introspection:
    | { readonly url: string; readonly apiKey: string }
    | IntrospectionCredentials
    | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** The credentials of RFC 6750 section 2.1, with one space; the scheme is case-insensitive (RFC 9110 section 11.1). */
const bearer = /^bearer ([A-Za-z0-9._~+/-]+=*)$/i;

interface CallersOfProcess extends Callers {
  /** Connects to the introspection service, if there is one. A refusal of our key is logged. */
  prepare(): Promise<void>;
  /** Ends the connection to the introspection service. */
  close(): void;
}

export function createCallers(dependencies: Dependencies): CallersOfProcess {
  const { issuer, audience, userAppClientIds, backofficeClientId, clock, logger } = dependencies;
  const keySet = createKeySet({ issuer, clock, logger });
  const verify = createVerifyAccessToken({ issuer, audience, keySet, clock, logger });
  const introspection = dependencies.introspection && introspectionBy(dependencies.introspection, issuer);

  async function claimsOf(authorization: string | undefined): Promise<TokenClaims | undefined> {
    const [, token] = bearer.exec(authorization ?? "") ?? [];
    const claims = token === undefined ? undefined : await verify(token);
    if (token === undefined || !claims || !introspection) return claims;
    const active = await introspection.introspect(token);
    const { sub = claims.sub, clientId = claims.clientId } = active ?? {};
    return active && sub === claims.sub && clientId === claims.clientId ? claims : undefined;
  }

  async function callerOf(
    authorization: string | undefined,
    clientIds: readonly string[],
  ): Promise<TokenClaims | undefined> {
    const claims = await claimsOf(authorization);
    if (claims && !clientIds.includes(claims.clientId)) throw wrongApplication();
    return claims;
  }

  return {
    async user(authorization) {
      const claims = await callerOf(authorization, userAppClientIds);
      if (claims?.isClient) throw noUser();
      return claims && { userId: claims.sub, clientId: claims.clientId, authorizationId: claims.sid };
    },
    async backoffice(authorization) {
      const claims = await callerOf(authorization, [backofficeClientId]);
      return claims && { clientId: claims.clientId };
    },
    async prepare() {
      await introspection?.prepare().catch((err: unknown) => {
        if (!(err instanceof RefusedCredentialsError)) throw err;
        logger.error(
          { err },
          "The platform security service refuses PLATFORM_SECURITY_API_KEY, so no caller can be checked: set it to the key that auth has, and restart",
        );
      });
    },
    close: () => introspection?.close(),
  };
}

function introspectionBy(
  settings: Exclude<Dependencies["introspection"], undefined>,
  issuer: string,
): Introspection {
  return "url" in settings
    ? createIntrospectionClient(settings.url, settings.apiKey)
    : createIntrospectionEndpoint(issuer, settings);
}
