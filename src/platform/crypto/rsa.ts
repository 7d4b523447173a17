import { createPublicKey, type KeyObject } from "node:crypto";

/** Bits of the modulus, at least (RFC 7518 section 3.3). */
const leastBits = 2048;
/** The usual exponent. With a smaller one, faults of padding become forgeries; with 1, anybody can sign. */
const leastExponent = 65_537n;

/** Why an RSA key, public or private, must not be used, as a phrase; undefined if nothing speaks against it. */
export function rsaWeakness(key: KeyObject): string | undefined {
  if (key.asymmetricKeyType !== "rsa") return `must be an RSA key, but is of type ${key.asymmetricKeyType}`;
  const { modulusLength = 0, publicExponent = 0n } = key.asymmetricKeyDetails ?? {};
  if (modulusLength < leastBits)
    return `must be an RSA key of at least ${leastBits} bits, but has ${modulusLength}`;
  if (publicExponent < leastExponent || publicExponent % 2n === 0n) {
    return `must be an RSA key whose exponent is odd and at least ${leastExponent}, but has ${publicExponent}`;
  }
  const { n = "" } = (key.type === "private" ? createPublicKey(key) : key).export({ format: "jwk" });
  // The product of two primes is odd.
  const isOdd = ((Buffer.from(n, "base64url").at(-1) ?? 0) & 1) === 1;
  return isOdd ? undefined : "must be an RSA key whose modulus is odd";
}

/** The exponent of the keys that development mode makes, by which production recognises and refuses them. */
export const developmentExponent = 65_539;

/** Whether development mode has made the key. */
export function isOfDevelopment(key: KeyObject): boolean {
  return key.asymmetricKeyDetails?.publicExponent === BigInt(developmentExponent);
}
