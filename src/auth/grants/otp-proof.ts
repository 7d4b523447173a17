import { createHash, createPublicKey } from "node:crypto";
import type { JWTPayload } from "jose";
import type { Clock } from "../../platform/base/clock.ts";
import { unavailable } from "../../platform/base/errors.ts";
import { algorithmOf, isNumericDate, readJws, verifiedClaims } from "../../platform/crypto/jws.ts";
import { canonicalPhone } from "../identities/phone.ts";

/** Seconds that the clocks of the two services may differ. */
const clockSkewSeconds = 30;

/** A verified proof. The database decides whether it was redeemed before. */
interface OtpProof {
  /** SHA-256 of issuer and jti, or where there is no jti of issuer and all that was signed. */
  readonly hash: Buffer;
  /** From then on the proof is refused for its age. */
  readonly expiresAt: Date;
}

/**
 * Checks a proof that `phone` (canonical) passed an OTP check; undefined if it does not prove that.
 * @throws unavailable if there are no keys
 */
export type VerifyOtpProof = (token: string, phone: string | undefined) => Promise<OtpProof | undefined>;

/** The phone in the claims, in canonical form. The first of the claims that is there must have it. */
function provenPhone({ phone_number, phone, sub }: JWTPayload): string | undefined {
  const proven = [phone_number, phone, sub].find((claim) => claim !== undefined);
  return typeof proven === "string" ? canonicalPhone(proven) : undefined;
}

/**
 * When a proof ends that is valid now, in seconds since 1970; undefined if it is not. Its age counts from `iat`;
 * without it, the time that is left until `exp` is limited.
 */
function endOf({ exp, iat }: JWTPayload, now: number, maxSeconds: number): number | undefined {
  if (!isTimeOrAbsent(exp) || !isTimeOrAbsent(iat)) return undefined;
  if (iat === undefined) return exp !== undefined && exp > now && exp <= now + maxSeconds ? exp : undefined;
  // A proof is still accepted in the second in which it reaches the greatest age.
  const end = Math.min(exp ?? Number.POSITIVE_INFINITY, iat + maxSeconds + 1);
  return iat <= now + clockSkewSeconds && end > now ? end : undefined;
}

function isTimeOrAbsent(claim: unknown): claim is number | undefined {
  return claim === undefined || isNumericDate(claim);
}

/** What identifies a proof. Without a jti that is what was signed: of an ECDSA signature others can be made. */
function hashOf(issuer: string, jti: string | undefined, token: string): Buffer {
  const signed = token.slice(0, token.lastIndexOf("."));
  return createHash("sha256")
    .update(JSON.stringify(jti === undefined ? [issuer, "", signed] : [issuer, jti]))
    .digest();
}

interface Settings {
  readonly issuer: string;
  /** Undefined: a proof that names an audience is for somebody else (RFC 7519 section 4.1.3). */
  readonly audience: string | undefined;
  /** PEM texts. None: no client of this process's list needs one, but another may have stored a newer list. */
  readonly publicKeys: readonly string[];
  readonly maxSeconds: number;
}

const unset = new Error("OTP_VERIFICATION_TOKEN_PUBLIC_KEY is not set");

export function createVerifyOtpProof(settings: Settings, clock: Clock): VerifyOtpProof {
  const keys = settings.publicKeys.map((pem) => createPublicKey(pem));

  async function claimsOf(token: string): Promise<JWTPayload | undefined> {
    const jws = readJws(token);
    // A token of another type is no proof, even if the key has signed it: an access token, or one for a logout.
    if (!jws || (jws.type !== undefined && jws.type !== "jwt")) return undefined;
    // A key in PEM form has no id that the token could name.
    for (const key of keys) {
      const claims = await verifiedClaims(jws, key, {
        algorithms: [algorithmOf(key)],
        issuer: settings.issuer,
        currentDate: new Date(clock.now()),
        clockTolerance: clockSkewSeconds,
      });
      if (claims) return claims;
    }
    return undefined;
  }

  return async (token, phone) => {
    if (keys.length === 0) throw unavailable("The OTP verification service", unset);
    const claims = await claimsOf(token);
    if (!claims || phone === undefined || provenPhone(claims) !== phone) return undefined;
    // A proof without `aud` is for whoever has the key. One with it must name us.
    const { jti, aud = settings.audience, phone_number_verified: isVerified = true } = claims;
    if (![aud].flat().includes(settings.audience) || isVerified !== true) return undefined;
    if (jti !== undefined && (typeof jti !== "string" || jti === "")) return undefined;
    const end = endOf(claims, clock.now() / 1000, settings.maxSeconds);
    if (end === undefined) return undefined;
    const expiresAt = new Date((end + clockSkewSeconds) * 1000);
    return { hash: hashOf(settings.issuer, jti, token), expiresAt };
  };
}
