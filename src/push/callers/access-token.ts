/**
 * Access tokens (RFC 9068) of the identity provider, checked by what they say and by their signature. Whether
 * one was revoked is not theirs to say.
 */
import { hash } from "node:crypto";
import { type CryptoKey, decodeProtectedHeader, errors, jwtVerify } from "jose";
import { LRUCache } from "lru-cache";
import { type Clock, unixSeconds } from "../../platform/base/clock.ts";
import { isStrictJws } from "../../platform/crypto/jws-syntax.ts";
import type { KeySet } from "./key-set.ts";

/** What a token says of who calls. */
export interface TokenClaims {
  readonly sub: string;
  readonly clientId: string;
}

/** The claims of a good token, undefined for any other. @throws unavailable where the issuer's keys cannot be had */
type VerifyAccessToken = (token: string) => Promise<TokenClaims | undefined>;

/** Seconds that the issuer's clock may be ahead. An expired token is expired. */
const clockSkewSeconds = 30;

/** Longest claim that is taken for an id. */
const maxIdLength = 256;

interface Verified {
  readonly claims: TokenClaims & { readonly exp: number; readonly notBefore: number };
  readonly kid: string;
  /** The key that its signature is by: withdrawn, it vouches for nothing any more. */
  readonly key: CryptoKey;
}

interface Dependencies {
  readonly issuer: string;
  readonly keySet: KeySet;
  readonly clock: Clock;
  /** Tokens found good to remember, by the digest of the text. */
  readonly remembered?: number;
}

export function createVerifyAccessToken({
  issuer,
  keySet,
  clock,
  remembered = 20_000,
}: Dependencies): VerifyAccessToken {
  // A signature is verified once. What is remembered is that it was good, never that the token is active.
  const verified = new LRUCache<string, Verified>({ max: remembered });

  async function verify(token: string): Promise<Verified | undefined> {
    if (!isStrictJws(token)) return undefined;
    try {
      const { kid, alg, typ } = decodeProtectedHeader(token);
      if (typeof kid !== "string" || alg !== "RS256" || typ !== "at+jwt") return undefined;
      const key = await keySet.key(kid);
      if (!key) return undefined;
      const { payload } = await jwtVerify(token, key, {
        algorithms: ["RS256"],
        typ: "at+jwt",
        issuer,
        currentDate: new Date(clock.now()),
        clockTolerance: clockSkewSeconds,
        requiredClaims: ["sub", "exp", "iat", "jti", "client_id"],
      });
      const { sub, client_id: clientId, jti, exp, iat, nbf = iat } = payload;
      if (!isId(sub) || !isId(clientId) || !isId(jti) || !isTime(exp) || !isTime(iat) || !isTime(nbf))
        return undefined;
      return { claims: { sub, clientId, exp, notBefore: Math.max(iat, nbf) }, kid, key };
    } catch (error) {
      if (error instanceof errors.JOSEError) return undefined;
      throw error;
    }
  }

  return async (token) => {
    const digest = hash("sha256", token, "base64url");
    let found = verified.get(digest);
    if (found && (await keySet.key(found.kid)) !== found.key) {
      verified.delete(digest);
      found = undefined;
    }
    if (!found) {
      found = await verify(token);
      if (found) verified.set(digest, found);
    }
    if (!found) return undefined;
    const { exp, notBefore, sub, clientId } = found.claims;
    const now = unixSeconds(clock);
    if (exp <= now) verified.delete(digest);
    return exp > now && notBefore <= now + clockSkewSeconds ? { sub, clientId } : undefined;
  };
}

function isId(claim: unknown): claim is string {
  return typeof claim === "string" && claim.length > 0 && claim.length <= maxIdLength;
}

function isTime(claim: unknown): claim is number {
  return Number.isSafeInteger(claim);
}
