/**
 * The proof of an app's key, in the header DPoP (RFC 9449 section 4.3). `jti` is not remembered: while a proof
 * is fresh, at most two minutes and with a nonce ten, whoever repeats the request gets what its sender got.
 */
import { hash, type JsonWebKey } from "node:crypto";
import type { Clock } from "../../platform/base/clock.ts";
import { invalidInput, ServiceError } from "../../platform/base/errors.ts";
import { isNumericDate, isSignedByEs256, readJws } from "../../platform/crypto/jws.ts";
import { AuthErrorKinds } from "../errors.ts";
import type { Nonces } from "./nonces.ts";

/** Seconds that `iat` may be away from the server's clock, on either side. */
const toleranceSeconds = 60;

/**
 * Verifies the proof of a POST.
 * @param header DPoP @param path of the operation, below the issuer
 * @returns the thumbprint of the key (RFC 7638): SHA-256, base64url
 * @throws invalid_request without a header, invalid_dpop_proof, use_dpop_nonce
 */
export type VerifyProof = (header: string | undefined, path: string) => Promise<string>;

interface Dependencies {
  readonly nonces: Nonces;
  readonly clock: Clock;
  /** The issuer, and by which else it is reached: what `htu` may name, and never the request's Host. */
  readonly issuers: readonly string[];
}

export function createVerifyProof({ nonces, clock, issuers }: Dependencies): VerifyProof {
  async function isFresh({ iat, nonce }: Readonly<Record<string, unknown>>): Promise<boolean> {
    if (isNumericDate(iat) && Math.abs(iat - clock.now() / 1000) <= toleranceSeconds) return true;
    return typeof nonce === "string" && nonces.isGood(nonce);
  }

  return async (header, path) => {
    if (header === undefined) {
      const message = "is missing: this client proves its key with each request (RFC 9449)";
      throw invalidInput([{ pointer: "/header/DPoP", message }]);
    }
    const jws = readJws(header);
    const proven = keyIn(jws?.header["jwk"]);
    if (jws?.type !== "dpop+jwt" || !proven || !isSignedByEs256(jws, proven.key))
      throw invalidProof(
        "must be a JWT of the type dpop+jwt, signed with ES256 by the public key in its jwk",
      );
    const { claims } = jws;
    const { htm, htu, jti } = claims;
    if (typeof jti !== "string" || jti === "") throw invalidProof("must have a jti");
    if (htm !== "POST") throw invalidProof("must have the htm POST");
    const targets = issuers.map((issuer) => issuer + path);
    if (!targets.includes(targetOf(htu))) throw invalidProof(`must have the htu ${targets[0]}`);
    if (!(await isFresh(claims))) throw await staleProof(nonces);
    return proven.thumbprint;
  };
}

/** A coordinate of P-256 (RFC 7518 section 6.2.1.2). */
const isCoordinate = (member: unknown): member is string =>
  typeof member === "string" && /^[A-Za-z0-9_-]{43}$/.test(member);

/** A public key of ES256, with its thumbprint (RFC 7638); undefined if it is none, or a private one. */
export function keyIn(jwk: unknown): { readonly key: JsonWebKey; readonly thumbprint: string } | undefined {
  const { kty, crv, x, y, d }: Readonly<Record<string, unknown>> = Object(jwk);
  if (kty !== "EC" || crv !== "P-256" || !isCoordinate(x) || !isCoordinate(y) || d !== undefined)
    return undefined;
  // In alphabetical order, as the thumbprint has them.
  const key = { crv, kty, x, y };
  return { key, thumbprint: hash("sha256", JSON.stringify(key), "base64url") };
}

/** `htu` in its normal form, without query and fragment (RFC 9449 section 4.3); empty if it is no URL. */
function targetOf(htu: unknown): string {
  const url = typeof htu === "string" ? URL.parse(htu) : null;
  return url ? url.origin + url.pathname : "";
}

function invalidProof(what: string): ServiceError {
  return new ServiceError(AuthErrorKinds.invalidProof, `The proof in the header DPoP ${what}.`);
}

async function staleProof(nonces: Nonces): Promise<ServiceError> {
  return new ServiceError(
    AuthErrorKinds.useNonce,
    "The iat of the proof is more than a minute off. Send the proof again with the nonce of the header DPoP-Nonce.",
    { headers: { "DPoP-Nonce": await nonces.current() } },
  );
}
