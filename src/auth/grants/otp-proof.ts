import { createHash, createPublicKey, type KeyObject } from "node:crypto";
import type { JWTPayload } from "jose";
import { type Clock, unixSeconds } from "../../platform/base/clock.ts";
import { readJws, verifiedClaims } from "../../platform/crypto/jws.ts";
import { canonicalPhone } from "../identities/phone.ts";

/** Seconds between `iat` (or now) and `exp` of a proof, at most. */
const maxLifetimeSeconds = 600;
/** Seconds that the clocks of the two services may differ. */
const clockSkewSeconds = 30;

/** The `typ` of an access token (RFC 9068 section 2.1) in each of its spellings (RFC 7515 section 4.1.9). */
const accessTokenType = /^(application\/)?at\+jwt$/i;

/** A verified proof. The database decides whether it was redeemed before. */
interface OtpProof {
  /** SHA-256 of issuer and jti. */
  readonly hash: Buffer;
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

/** The phone in the claims, as it is spelled there: `phone_number`, else `sub`; undefined if it is no string. */
function provenPhone({ phone_number, sub }: JWTPayload): string | undefined {
  if (phone_number === undefined) return sub;
  return typeof phone_number === "string" ? phone_number : undefined;
}

/** Whether the proof is valid now, and for no longer than allowed. The skew is for clocks that run ahead. */
function hasValidLifetime({ exp = 0, iat }: JWTPayload, now: number): boolean {
  if (!Number.isInteger(exp) || exp <= now) return false;
  if (iat !== undefined && iat > now + clockSkewSeconds) return false;
  return exp - Math.min(iat ?? now, now) <= maxLifetimeSeconds;
}

export function createVerifyOtpProof(
  settings: { issuer: string; publicKey: string },
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
      requiredClaims: ["exp", "jti"],
    });
  }

  return async (token, phone) => {
    const claims = await claimsOf(token);
    if (!claims || phone === undefined || !hasValidLifetime(claims, unixSeconds(clock))) return undefined;
    const { exp = 0, jti } = claims;
    const proven = provenPhone(claims);
    if (typeof jti !== "string" || jti === "" || typeof proven !== "string") return undefined;
    if (canonicalPhone(proven) !== phone) return undefined;
    const hash = createHash("sha256")
      .update(JSON.stringify([settings.issuer, jti]))
      .digest();
    return { hash, expiresAt: new Date((exp + clockSkewSeconds) * 1000) };
  };
}
