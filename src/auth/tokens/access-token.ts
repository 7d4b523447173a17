/**
 * Access tokens: JWTs of RFC 9068 (their `typ` may be set), signed with RS256. The jti begins with the id of the
 * authorization, whose state decides whether the token is active.
 */
import { hash, sign } from "node:crypto";
import { promisify } from "node:util";
import type { Clock } from "../../platform/base/clock.ts";
import { DigestCache } from "../../platform/crypto/digest-cache.ts";
import { readJws, verifiedClaims } from "../../platform/crypto/jws.ts";
import { randomBytes } from "../../platform/crypto/random.ts";
import type { KeyStore } from "../keys/key-store.ts";

/** Claims of an access token (RFC 9068 section 2.2). Times are Unix seconds. */
export interface AccessTokenClaims {
  readonly iss: string;
  readonly sub: string;
  readonly aud: readonly string[];
  readonly exp: number;
  readonly nbf: number;
  readonly iat: number;
  /** `<authorization id>.<random>`. */
  readonly jti: string;
  /** The id of the authorization, read from `jti`. */
  readonly sid: string;
  readonly client_id: string;
  readonly scope: string | undefined;
  /** The grant of a token whose `sub` is a client; undefined: it is a user. */
  readonly gty?: "client_credentials" | undefined;
  /** The organization that the client acts for. */
  readonly org_id?: string | undefined;
}

/** Each character is written out, which V8 matches three times as fast. */
const uuid = [8, 4, 4, 4, 12].map((digits) => "[0-9a-f]".repeat(digits)).join("-");
/** A uuid, a dot, and 16 random bytes. */
const jtiPattern = new RegExp(`^${uuid}\\.${"[A-Za-z0-9_-]".repeat(22)}$`);

export function newJti(authorizationId: string): string {
  return `${authorizationId}.${randomBytes(16).toString("base64url")}`;
}

/** Characters at the beginning of a jti that are the id of its authorization. */
export const authorizationIdLength = 36;

export interface AccessTokens {
  sign(claims: AccessTokenClaims): Promise<string>;
  /**
   * The claims of a token that this issuer signed and that has not expired; undefined for anything else. Does not check
   * revocation. Not a promise if the signature is cached as valid.
   */
  verify(token: string): AccessTokenClaims | undefined | Promise<AccessTokenClaims | undefined>;
}

/** Sets of the cache of valid signatures: some 100,000 tokens in 4 MiB. */
const rememberedSets = 16_384;

/** `typ` of RFC 9068, or of RFC 7519 for resource servers that take no other. */
type AccessTokenType = "at+jwt" | "JWT";

interface Dependencies {
  readonly keys: KeyStore;
  readonly issuer: string;
  readonly clock: Clock;
  /** `typ` of the tokens that are signed. */
  readonly type: AccessTokenType;
}

export function createAccessTokens({ keys, issuer, clock, type }: Dependencies): AccessTokens {
  // A signature is verified once. The cache holds that it is valid, never that the token is active.
  const verified = new DigestCache(rememberedSets);
  // Those of RFC 9068 always: where the type becomes JWT, the tokens that were issued before stay active. JWT only
  // where the setting says so, as any JWT may be of that type.
  const types = new Set<unknown>(["at+jwt", type]);

  async function isSignedHere(token: string): Promise<boolean> {
    const jws = readJws(token);
    const key = jws && keys.verificationKey(jws.header["kid"]);
    if (!jws || !key || !types.has(jws.header["typ"])) return false;
    const claims = await verifiedClaims(jws, key, {
      algorithms: ["RS256"],
      issuer,
      // The times are judged by currentClaims.
      clockTolerance: Number.MAX_SAFE_INTEGER,
      requiredClaims: ["sub", "aud", "exp", "nbf", "iat", "jti", "client_id"],
    });
    return claims !== undefined;
  }

  /**
   * The claims of a token whose signature is valid; undefined if it has expired. `nbf` is not compared with the clock.
   */
  function currentClaims(token: string): AccessTokenClaims | undefined {
    const claims = claimsOf(payloadOf(token));
    return claims && claims.exp * 1_000 > clock.now() ? claims : undefined;
  }

  const { keyId, privateKey } = keys.current;
  const header = base64url(JSON.stringify({ alg: "RS256", typ: type, kid: keyId }));

  return {
    // The compact serialization (RFC 7515 section 7.1). jose would take an eighth longer.
    async sign(claims) {
      const input = `${header}.${base64url(JSON.stringify(claims))}`;
      const signature = await signInBackground("sha256", Buffer.from(input, "latin1"), privateKey);
      return `${input}.${signature.toString("base64url")}`;
    },

    verify(token) {
      const digest = hash("sha256", token, "binary");
      if (verified.has(digest)) return currentClaims(token);
      return isSignedHere(token).then((isSigned) => {
        if (!isSigned) return undefined;
        verified.add(digest);
        return currentClaims(token);
      });
    },
  };
}

/** Signs on the thread pool, as a signature takes a quarter of a millisecond. RSA with SHA-256 is RS256. */
const signInBackground = promisify(sign);

function base64url(text: string): string {
  return Buffer.from(text, "utf8").toString("base64url");
}

/** The payload of a token whose signature is valid. */
function payloadOf(token: string): Record<string, unknown> {
  const start = token.indexOf(".") + 1;
  // `lastIndexOf` would look at each character of the signature, and slowly.
  const payload = token.slice(start, token.indexOf(".", start));
  return JSON.parse(Buffer.from(payload, "base64url").toString("utf8"));
}

function isTime(claim: unknown): claim is number {
  return Number.isSafeInteger(claim);
}

/** The claims of a payload that this issuer signed. Their types are checked all the same, as a safeguard. */
function claimsOf(payload: Record<string, unknown>): AccessTokenClaims | undefined {
  const { iss, sub, aud, exp, nbf, iat, jti, client_id, scope, gty, org_id } = payload;
  if (typeof iss !== "string" || typeof sub !== "string" || typeof client_id !== "string") return undefined;
  if (!isTime(exp) || !isTime(nbf) || !isTime(iat) || nbf !== iat) return undefined;
  if (typeof jti !== "string" || !jtiPattern.test(jti)) return undefined;
  if (!Array.isArray(aud) || !aud.every((one) => typeof one === "string")) return undefined;
  if (!aud.includes(client_id)) return undefined;
  if (scope !== undefined && typeof scope !== "string") return undefined;
  if (gty !== undefined && gty !== "client_credentials") return undefined;
  if (org_id !== undefined && typeof org_id !== "string") return undefined;
  const sid = jti.slice(0, authorizationIdLength);
  return { iss, sub, aud, exp, nbf, iat, jti, sid, client_id, scope, gty, org_id };
}
