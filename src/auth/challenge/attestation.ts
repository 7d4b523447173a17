import { createPublicKey } from "node:crypto";
import type { JWTPayload } from "jose";
import type { Clock } from "../../platform/base/clock.ts";
import { ServiceError } from "../../platform/base/errors.ts";
import { algorithmOf, isNumericDate, readJws, verifiedClaims } from "../../platform/crypto/jws.ts";
import type { Client } from "../clients/client-repository.ts";
import { AuthErrorKinds } from "../errors.ts";
import { keyIn } from "../proofs/proof.ts";

/** What is presented: the header OAuth-Client-Attestation, and the thumbprint of the key that the app has proven. */
interface Presented {
  readonly header: string | undefined;
  readonly keyThumbprint: string;
}

/**
 * Refuses an app whose client has `attestationKeys` and whose key the client's back end has not attested
 * (draft-ietf-oauth-attestation-based-client-auth; the proof is that of DPoP). What that back end has verified of the
 * app is its own matter.
 * @throws invalid_client_attestation, or use_fresh_attestation for one that has expired
 */
export async function requireAttestation(
  { clientId, clientSettings: { attestationKeys = [] } }: Client,
  { header = "", keyThumbprint }: Presented,
  clock: Clock,
): Promise<void> {
  if (attestationKeys.length === 0) return;
  const now = clock.now() / 1000;
  const { exp, nbf = 0, cnf } = (await attested(header, clientId, attestationKeys)) ?? {};
  const isOfKey = keyIn(Object(cnf).jwk)?.thumbprint === keyThumbprint;
  if (!isOfKey || !isNumericDate(exp) || !isNumericDate(nbf) || nbf > now + skewSeconds) {
    throw new ServiceError(
      AuthErrorKinds.invalidAttestation,
      "This client needs an attestation of its own back end for the key of the proof, in the header OAuth-Client-Attestation.",
    );
  }
  if (exp > now) return;
  const detail = "The attestation has expired. Get a new one from the client's back end.";
  throw new ServiceError(AuthErrorKinds.useFreshAttestation, detail);
}

/** Seconds that the clocks of the two servers may differ. */
const skewSeconds = 60;

async function attested(
  header: string,
  subject: string,
  pems: readonly string[],
): Promise<JWTPayload | undefined> {
  const jws = readJws(header);
  if (jws?.type !== "oauth-client-attestation+jwt") return undefined;
  for (const pem of pems) {
    const key = createPublicKey(pem);
    // The times are judged by the caller.
    const rules = { algorithms: [algorithmOf(key)], subject, clockTolerance: Number.MAX_SAFE_INTEGER };
    const claims = await verifiedClaims(jws, key, rules);
    if (claims) return claims;
  }
  return undefined;
}
