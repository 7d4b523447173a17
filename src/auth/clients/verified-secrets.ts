import { hash as digest, randomBytes, timingSafeEqual } from "node:crypto";
import { LRUCache } from "lru-cache";

/**
 * A cache of secrets that argon2 has verified, as digests under a random key of this process. An entry is valid for one
 * stored hash only.
 */
export class VerifiedSecrets {
  readonly #key = randomBytes(32).toString("base64url");
  readonly #headers = new LRUCache<string, { clientId: string; secretHash: string }>({ max: 1000 });
  /** Digests of secrets, by the stored hash that each was verified against. */
  readonly #verified = new Map<string, Buffer>();

  #digest(secret: string): Buffer {
    return digest("sha256", this.#key + secret, "buffer");
  }

  #headerDigest(authorization: string): string {
    return digest("sha256", this.#key + authorization, "base64url");
  }

  add(secretHash: string, secret: string): void {
    this.#verified.set(secretHash, this.#digest(secret));
  }

  /** Caches a whole Authorization header that was verified, so that it need not be parsed the next time. */
  addHeader(authorization: string, clientId: string, secretHash: string): void {
    this.#headers.set(this.#headerDigest(authorization), { clientId, secretHash });
  }

  /** The client for which the header was verified, and the hash of its secret at that time. */
  findHeader(authorization: string): { readonly clientId: string; readonly secretHash: string } | undefined {
    return this.#headers.get(this.#headerDigest(authorization));
  }

  /** True if this secret was verified against this hash; false does not mean that it is wrong. */
  isVerified(secretHash: string, secret: string): boolean {
    const known = this.#verified.get(secretHash);
    return known !== undefined && timingSafeEqual(known, this.#digest(secret));
  }

  /** True if the secret of this hash was verified: every other secret is wrong. */
  isKnown(secretHash: string): boolean {
    return this.#verified.has(secretHash);
  }
}
