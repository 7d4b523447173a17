import { hash as digest, randomBytes, timingSafeEqual } from "node:crypto";
import { LRUCache } from "lru-cache";

/**
 * Remembers secrets that argon2 has found right, under a key that lives and dies with this process, so that
 * argon2 is not paid for on every request. Bound to the stored hash: a changed secret is forgotten by itself.
 */
export class VerifiedSecrets {
  readonly #key = randomBytes(32).toString("base64url");
  readonly #headers = new LRUCache<string, { clientId: string; secretHash: string }>({ max: 1000 });
  readonly #verified = new Map<string, { secretHash: string; digest: Buffer }>();

  #digest(secret: string): Buffer {
    return digest("sha256", this.#key + secret, "buffer");
  }

  #headerDigest(authorization: string): string {
    return digest("sha256", this.#key + authorization, "base64url");
  }

  remember(clientId: string, secretHash: string, secret: string): void {
    this.#verified.set(clientId, { secretHash, digest: this.#digest(secret) });
  }

  /** Remembers a whole header that was found right, which spares taking it apart the next time. */
  rememberHeader(authorization: string, clientId: string, secretHash: string): void {
    this.#headers.set(this.#headerDigest(authorization), { clientId, secretHash });
  }

  /** The client that the header was found right for, and the hash of its secret at that time. */
  recallHeader(
    authorization: string,
  ): { readonly clientId: string; readonly secretHash: string } | undefined {
    return this.#headers.get(this.#headerDigest(authorization));
  }

  /** True if this very secret was found right for this very hash; false says nothing. */
  knows(clientId: string, secretHash: string, secret: string): boolean {
    return this.#verified.get(clientId)?.secretHash === secretHash && this.hasSeen(clientId, secret);
  }

  /** True if this very secret was found right before, for whatever hash. Whoever has it is not guessing. */
  hasSeen(clientId: string, secret: string): boolean {
    const known = this.#verified.get(clientId);
    return known !== undefined && timingSafeEqual(known.digest, this.#digest(secret));
  }
}
