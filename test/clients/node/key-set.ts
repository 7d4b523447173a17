/** Local: by the key set, which is fetched now and then. */
import { createRemoteJWKSet, errors, jwtVerify } from "jose";
import { Unavailable } from "./protect.ts";

const { GATEPOST_AUTH_URL = "", GATEPOST_ISSUER = "", GATEPOST_AUDIENCE = "" } = process.env;
const keySet = createRemoteJWKSet(new URL(`${GATEPOST_AUTH_URL}/v1/jwks`), {
  cacheMaxAge: 300_000,
  timeoutDuration: 2_000,
});

/** What goes wrong with the key set, not with the token. */
const withoutKeys = new Set([errors.JOSEError.code, errors.JWKSInvalid.code, errors.JWKSTimeout.code]);

/** The id of the user that the token was issued to, or undefined if the token is not good. */
export async function verify(token: string): Promise<string | undefined> {
  try {
    const { payload } = await jwtVerify(token, keySet, {
      issuer: GATEPOST_ISSUER,
      audience: GATEPOST_AUDIENCE,
      typ: "at+jwt",
      algorithms: ["RS256"],
      clockTolerance: 60,
      requiredClaims: ["exp", "sub"],
    });
    return payload.sub;
  } catch (error) {
    if (error instanceof errors.JOSEError && !withoutKeys.has(error.code)) return undefined;
    throw new Unavailable("the key set cannot be fetched", { cause: error });
  }
}
