import { createHash, createPublicKey, type KeyObject } from "node:crypto";
import { errors, jwtVerify } from "jose";
import { type Clock, unixSeconds } from "../../platform/clock.ts";
import { canonicalPhone } from "../identities/phone.ts";

/** Seconds between `iat` (or now) and `exp` of a proof, at most. */
const maxLifetimeSeconds = 600;
/** Seconds that the clocks of the two services may differ. */
const clockSkewSeconds = 30;

/** JWS in compact form, and of a size that a proof can have. */
const compactForm = /^[A-Za-z0-9_-]{1,1024}\.[A-Za-z0-9_-]{1,6144}\.([A-Za-z0-9_-]{1,1024})$/;

/** A proof that verified; whether it was redeemed before is for the database to say. */
export interface OtpProof {
  /** SHA-256 of issuer and jti. */
  readonly hash: Buffer;
  readonly expiresAt: Date;
}

/** Checks a proof that `phone` (canonical) passed an OTP check; undefined if it does not prove that. */
export type VerifyOtpProof = (token: string, phone: string | undefined) => Promise<OtpProof | undefined>;

/** The key's type fixes the algorithm; the token's header has no say. */
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

export function createVerifyOtpProof(
  settings: { issuer: string; publicKey: string },
  clock: Clock,
): VerifyOtpProof {
  const key = createPublicKey(settings.publicKey);
  const algorithms = [algorithmOf(key)];

  return async (token, phone) => {
    const signature = compactForm.exec(token)?.[1];
    if (signature === undefined || phone === undefined) return undefined;
    // One proof, one spelling: the unused bits of the last character must be zero.
    if (Buffer.from(signature, "base64url").toString("base64url") !== signature) return undefined;
    try {
      const { payload } = await jwtVerify(token, key, {
        algorithms,
        issuer: settings.issuer,
        currentDate: new Date(clock.now()),
        clockTolerance: clockSkewSeconds,
        requiredClaims: ["exp", "jti"],
      });
      const { exp = 0, iat, jti, sub, phone_number } = payload;
      const now = unixSeconds(clock);
      // The skew is for clocks that run ahead; an expired proof is expired.
      if (exp <= now || (iat !== undefined && iat > now + clockSkewSeconds)) return undefined;
      if (exp - Math.min(iat ?? now, now) > maxLifetimeSeconds || !Number.isInteger(exp)) return undefined;
      if (typeof jti !== "string" || jti === "") return undefined;
      const proven = typeof phone_number === "string" ? phone_number : sub;
      if (phone_number !== undefined && typeof phone_number !== "string") return undefined;
      if (typeof proven !== "string" || canonicalPhone(proven) !== phone) return undefined;
      const hash = createHash("sha256")
        .update(JSON.stringify([settings.issuer, jti]))
        .digest();
      return { hash, expiresAt: new Date((exp + clockSkewSeconds) * 1000) };
    } catch (error) {
      if (error instanceof errors.JOSEError || error instanceof TypeError) return undefined;
      throw error;
    }
  };
}
