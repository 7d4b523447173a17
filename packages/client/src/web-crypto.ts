/** Keys of WebCrypto, which the browsers, Node.js, Deno and Bun have. */
import type { Signer } from "./dpop.ts";

const algorithm = { name: "ECDSA", namedCurve: "P-256" } as const;

export type KeyPair = Awaited<ReturnType<typeof newKeyPair>>;

/** The private key never leaves the platform: nobody can copy it. */
export const newKeyPair = async () => crypto.subtle.generateKey(algorithm, false, ["sign", "verify"]);

export async function signerOf({ publicKey, privateKey }: KeyPair): Promise<Signer> {
  const { x = "", y = "" } = await crypto.subtle.exportKey("jwk", publicKey);
  return {
    publicJwk: { kty: "EC", crv: "P-256", x, y },
    async sign(data) {
      // WebCrypto has r and s as JWS does, and not in DER.
      return new Uint8Array(await crypto.subtle.sign({ name: "ECDSA", hash: "SHA-256" }, privateKey, data));
    },
  };
}
