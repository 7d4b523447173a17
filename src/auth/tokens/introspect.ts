import type { AccessTokens } from "./access-token.ts";
import type { AuthorizationRepository } from "./authorization-repository.ts";

/** An active token (RFC 7662 section 2.2); times are Unix seconds. */
interface ActiveToken {
  readonly active: true;
  readonly sub: string;
  readonly aud: readonly string[];
  readonly nbf: number;
  readonly iss: string;
  readonly exp: number;
  readonly iat: number;
  readonly jti: string;
  readonly clientId: string;
  readonly scope: string | undefined;
}

export type Introspection = ActiveToken | { readonly active: false };

const inactive: Introspection = { active: false };

/**
 * Whether an access token is active. Reads the state from the database each time and throws if that fails: a
 * token is never reported as active from a cache.
 */
export type Introspect = (token: string) => Promise<Introspection>;

interface Dependencies {
  readonly accessTokens: AccessTokens;
  readonly authorizations: AuthorizationRepository;
}

export function createIntrospect({ accessTokens, authorizations }: Dependencies): Introspect {
  return async (token) => {
    const verifying = accessTokens.verify(token);
    const claims = verifying instanceof Promise ? await verifying : verifying;
    if (!claims || !(await authorizations.isActive(claims.jti))) return inactive;
    const { sub, aud, nbf, iss, exp, iat, jti, client_id: clientId, scope } = claims;
    return { active: true, sub, aud, nbf, iss, exp, iat, jti, clientId, scope };
  };
}
