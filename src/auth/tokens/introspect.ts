import type { AccessTokenClaims, AccessTokens } from "./access-token.ts";
import type { AuthorizationRepository } from "./authorization-repository.ts";

/**
 * The claims of an access token that is active; undefined for any other text. Reads the state from the database each
 * time and throws if that fails: a token is never reported as active from a cache.
 */
export type Introspect = (token: string) => Promise<AccessTokenClaims | undefined>;

interface Dependencies {
  readonly accessTokens: AccessTokens;
  readonly authorizations: AuthorizationRepository;
}

export function createIntrospect({ accessTokens, authorizations }: Dependencies): Introspect {
  return async (token) => {
    const verifying = accessTokens.verify(token);
    const claims = verifying instanceof Promise ? await verifying : verifying;
    return claims && (await authorizations.isActive(claims.jti)) ? claims : undefined;
  };
}
