/** The keys of an issuer's key set that can verify access tokens, and their algorithms. */
import { createPublicKey, type JsonWebKey, type KeyObject } from "node:crypto";
import { rsaWeakness } from "../../platform/crypto/rsa.ts";

/** A public key of the issuer. */
export interface VerificationKey {
  readonly kid: string;
  readonly key: KeyObject;
  /** The algorithms that a signature by it may have (RFC 7518 section 3.1): its own `alg`, else those of its type. */
  readonly algorithms: readonly string[];
}

/** A key that is meant for signatures, and cannot be used. */
export interface UnusableKey {
  readonly kid: string | undefined;
  readonly reason: string;
}

const rsaAlgorithms = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"];
const curveAlgorithms: Readonly<Record<string, string>> = {
  "P-256": "ES256",
  "P-384": "ES384",
  "P-521": "ES512",
};

type Members = Readonly<Record<string, unknown>>;

/** Reads a member of a key set (RFC 7517 section 4); undefined if it is not meant for verifying signatures. */
export function readKey(value: unknown): VerificationKey | UnusableKey | undefined {
  const jwk: Members = typeof value === "object" && value !== null ? { ...value } : {};
  const { use = "sig", key_ops: operations = ["verify"] } = jwk;
  if (use !== "sig" || !Array.isArray(operations) || !operations.includes("verify")) return undefined;
  const kid = typeof jwk["kid"] === "string" ? jwk["kid"] : undefined;
  if (kid === undefined) return { kid, reason: "must have a kid" };
  const possible = algorithmsOf(jwk);
  const algorithms = jwk["alg"] === undefined ? possible : possible.filter((alg) => alg === jwk["alg"]);
  if (algorithms.length === 0) return { kid, reason: "must be a key for one of RS, PS and ES" };
  const key = decoded(jwk);
  if (!key) return { kid, reason: "cannot be decoded" };
  const reason = jwk["kty"] === "RSA" ? rsaWeakness(key) : undefined;
  return reason === undefined ? { kid, key, algorithms } : { kid, reason };
}

/** The algorithms of the key's type and curve; none for keys of other types, symmetric ones among them. */
function algorithmsOf({ kty, crv }: Members): readonly string[] {
  if (kty === "RSA") return rsaAlgorithms;
  const algorithm = kty === "EC" && typeof crv === "string" ? curveAlgorithms[crv] : undefined;
  return algorithm === undefined ? [] : [algorithm];
}

/** The public key; undefined if its numbers are none, or name no point of its curve. */
function decoded({ kty, n, e, crv, x, y }: Members): KeyObject | undefined {
  try {
    return createPublicKey({ key: { kty, n, e, crv, x, y } as JsonWebKey, format: "jwk" });
  } catch {
    return undefined;
  }
}
