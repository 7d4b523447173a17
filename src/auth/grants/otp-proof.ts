import { createHash, createPublicKey, type KeyObject } from "node:crypto";
import type { JWTPayload } from "jose";
import { type Clock, unixSeconds } from "../../platform/base/clock.ts";
import { readJws, verifiedClaims } from "../../platform/crypto/jws.ts";
import { canonicalPhone } from "../identities/phone.ts";

/** Seconds that the clocks of the two services may differ. */
const clockSkewSeconds = 30;

/** The `typ` of an access token (RFC 9068 section 2.1) in each of its spellings (RFC 7515 section 4.1.9). */
const accessTokenType = /^(application\/)?at\+jwt$/i;

/** A verified proof. The database decides whether it was redeemed before. */
interface OtpProof {
  /** SHA-256 of issuer and jti, or where there is no jti of issuer and all that was signed. */
  readonly hash: Buffer;
  /** From then on the proof is refused for its age. */
  readonly expiresAt: Date;
}

/** Checks a proof that `phone` (canonical) passed an OTP check; undefined if it does not prove that. */
export type VerifyOtpProof = (token: string, phone: string | undefined) => Promise<OtpProof | undefined>;

/** The algorithm follows from the type of the key, never from the header of the token. */
function algorithmOf(key: KeyObject): string {
  switch (key.asymmetricKeyType) {
    case "rsa":
      return "RS256";
    case "ec":
      return "ES256";
    case "ed25519":
      return "EdDSA";
    default:
      throw new Error(
        `OTP_VERIFICATION_TOKEN_PUBLIC_KEY is of an unsupported type: ${key.asymmetricKeyType}`,
      );
  }
}

/** The phone in the claims, in canonical form. The first of the claims that is there must have it. */
function provenPhone({ phone_number, phone, sub }: JWTPayload): string | undefined {
  const proven = [phone_number, phone, sub].find((claim) => claim !== undefined);
  return typeof proven === "string" ? canonicalPhone(proven) : undefined;
}

/**
 * The second in which a proof ends that is valid now; undefined if it is not. Its age counts from `iat`. Where
 * there is none nobody knows the age, and what is limited is the time that is left until `exp`. The skew is for clocks
 * that run ahead.
 */
function endOf({ exp, iat }: JWTPayload, now: number, maxSeconds: number): number | undefined {
  if (!isTimeOrAbsent(exp) || !isTimeOrAbsent(iat)) return undefined;
  if (iat === undefined) return exp !== undefined && exp > now && exp <= now + maxSeconds ? exp : undefined;
  // A proof is still accepted in the second in which it reaches the greatest age.
  const end = Math.min(exp ?? Number.POSITIVE_INFINITY, iat + maxSeconds + 1);
  return iat <= now + clockSkewSeconds && end > now ? end : undefined;
}

function isTimeOrAbsent(claim: unknown): claim is number | undefined {
  return claim === undefined || Number.isSafeInteger(claim);
}

/**
 * What identifies a proof. Without a jti that is what was signed, and not the whole token: of one ECDSA signature
 * anybody can make another that is valid too.
 */
function hashOf(issuer: string, jti: string | undefined, token: string): Buffer {
  const signed = token.slice(0, token.lastIndexOf("."));
  return createHash("sha256")
    .update(JSON.stringify(jti === undefined ? [issuer, "", signed] : [issuer, jti]))
    .digest();
}

export function createVerifyOtpProof(
  settings: { issuer: string; publicKey: string; maxSeconds: number },
  clock: Clock,
): VerifyOtpProof {
  const key = createPublicKey(settings.publicKey);
  const algorithms = [algorithmOf(key)];

  async function claimsOf(token: string): Promise<JWTPayload | undefined> {
    const jws = readJws(token);
    // An access token is no proof, even if the key has signed it.
    if (!jws || accessTokenType.test(String(jws.header["typ"]))) return undefined;
    return verifiedClaims(jws, key, {
      algorithms,
      issuer: settings.issuer,
      currentDate: new Date(clock.now()),
      clockTolerance: clockSkewSeconds,
    });
  }

  return async (token, phone) => {
    const claims = await claimsOf(token);
    if (!claims || phone === undefined || provenPhone(claims) !== phone) return undefined;
    const { jti } = claims;
    if (jti !== undefined && (typeof jti !== "string" || jti === "")) return undefined;
    const end = endOf(claims, unixSeconds(clock), settings.maxSeconds);
    if (end === undefined) return undefined;
    const expiresAt = new Date((end + clockSkewSeconds) * 1000);
    return { hash: hashOf(settings.issuer, jti, token), expiresAt };
  };
}
