/** Checks tokens by the issuer's key set (RFC 9068 section 4). */
import { errors, jwtVerify } from "jose";
import { accessTokenOf, type Check } from "./access-token.ts";
import { createEndpoint, type UnavailableError } from "./auth-server.ts";
import { createKeySet } from "./key-set.ts";

/** Seconds by which the clocks of auth and of this machine may differ. */
const leewaySeconds = 60;

interface Dependencies {
  readonly issuer: string;
  readonly audience: string;
  /** The header's `typ`. */
  readonly type: string;
  readonly jwksUrl: string | undefined;
  readonly fetch: typeof fetch;
  readonly now: () => number;
  readonly monotonic: () => number;
  readonly onUnavailable: (error: UnavailableError) => void;
}

export function createKeysCheck(dependencies: Dependencies): Check {
  const { issuer, audience, type: typ, jwksUrl: given, fetch: call, now } = dependencies;
  const ask = createEndpoint(call, { issuer, member: "jwks_uri", given });
  const keyOf = createKeySet({ ...dependencies, ask });

  return async (token) => {
    try {
      const { payload } = await jwtVerify(token, keyOf, {
        ...{ issuer, audience, typ, clockTolerance: leewaySeconds, currentDate: new Date(now()) },
        // Not what the token's header names: that is who sent it.
        algorithms: ["RS256"],
        requiredClaims: ["exp", "sub", "client_id"],
      });
      return accessTokenOf(payload);
    } catch (error) {
      if (error instanceof errors.JOSEError) return undefined;
      throw error;
    }
  };
}
