/** Proofs that a request comes from who has the session's key (DPoP, RFC 9449). */
import { base64url } from "./platform.ts";

/** An ES256 key. `sign` makes the 64 bytes of a JWS signature, r and s (RFC 7518 section 3.4). */
export interface Signer {
  readonly publicJwk: { readonly kty: "EC"; readonly crv: "P-256"; readonly x: string; readonly y: string };
  sign(data: Uint8Array<ArrayBuffer>): Promise<Uint8Array>;
}

const utf8 = new TextEncoder();
const encoded = (value: object) => base64url(utf8.encode(JSON.stringify(value)));

interface Proven {
  readonly method: string;
  /** Without query and fragment. */
  readonly url: string;
  readonly nonce: string | undefined;
  /** Milliseconds since the epoch. */
  readonly now: number;
  readonly id: string;
}

export async function proofOf(signer: Signer, { method, url, nonce, now, id }: Proven): Promise<string> {
  const { kty, crv, x, y } = signer.publicJwk;
  const header = { typ: "dpop+jwt", alg: "ES256", jwk: { kty, crv, x, y } };
  const claims = { jti: id, htm: method, htu: url, iat: Math.floor(now / 1000), ...(nonce && { nonce }) };
  const input = `${encoded(header)}.${encoded(claims)}`;
  return `${input}.${base64url(await signer.sign(utf8.encode(input)))}`;
}
