import { createPrivateKey, type KeyObject, randomUUID } from "node:crypto";
import { SignJWT } from "jose";
import { type Clock, unixSeconds } from "../../platform/base/clock.ts";

/** Seconds that a proof is valid. */
export const proofSeconds = 300;

/** Signs a JWT which proves that the phone (canonical) passed a check. */
export type SignOtpProof = (phone: string) => Promise<string>;

/** The algorithm follows from the type of the key, as it does in the service that verifies the proof. */
function algorithmOf(key: KeyObject): string {
  const type = key.asymmetricKeyType;
  if (type === "rsa") return "RS256";
  if (type === "ed25519") return "EdDSA";
  if (key.asymmetricKeyDetails?.namedCurve === "prime256v1") return "ES256";
  throw new Error(`The key of OTP proofs is of an unsupported type: ${type}`);
}

/**
 * @param settings `iss` of the proofs, and the key (PEM: RSA, EC P-256 or Ed25519)
 * @throws if the key is of another type
 */
export function createSignOtpProof(
  settings: { issuer: string; privateKey: string },
  clock: Clock,
): SignOtpProof {
  const key = createPrivateKey(settings.privateKey);
  const alg = algorithmOf(key);

  return (phone) => {
    const now = unixSeconds(clock);
    return new SignJWT({ phone_number: phone })
      .setProtectedHeader({ alg, typ: "JWT" })
      .setIssuer(settings.issuer)
      .setSubject(phone)
      .setJti(randomUUID())
      .setIssuedAt(now)
      .setExpirationTime(now + proofSeconds)
      .sign(key);
  };
}
