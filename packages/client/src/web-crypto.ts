/** Keys of WebCrypto, which the browsers, Node.js, Deno and Bun have. */
import type { Signer } from "./dpop.ts";

const algorithm = { name: "ECDSA", namedCurve: "P-256" } as const;

/** @param extractable false: the private key never leaves the platform, and nobody can copy it */
export async function newKeyPair(extractable: boolean): Promise<CryptoKeyPair> {
  return crypto.subtle.generateKey(algorithm, extractable, ["sign", "verify"]);
}

export async function importedKeyPair(jwk: JsonWebKey): Promise<CryptoKeyPair> {
  const { d: _private, key_ops: _operations, ...open } = jwk;
  const imported = (key: JsonWebKey, use: KeyUsage) =>
    crypto.subtle.importKey("jwk", key, algorithm, use === "verify", [use]);
  return { publicKey: await imported(open, "verify"), privateKey: await imported(jwk, "sign") };
}

export async function signerOf({ publicKey, privateKey }: CryptoKeyPair): Promise<Signer> {
  const { x = "", y = "" } = await crypto.subtle.exportKey("jwk", publicKey);
  return {
    publicJwk: { kty: "EC", crv: "P-256", x, y },
    async sign(data) {
      // WebCrypto has r and s as JWS does, and not in DER.
      return new Uint8Array(await crypto.subtle.sign({ name: "ECDSA", hash: "SHA-256" }, privateKey, data));
    },
  };
}
