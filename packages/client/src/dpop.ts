/** Proofs that a request comes from who has the session's key (DPoP, RFC 9449). */

/** An ES256 key. `sign` makes the 64 bytes of a JWS signature, r and s (RFC 7518 section 3.4). */
export interface Signer {
  readonly publicJwk: { readonly kty: "EC"; readonly crv: "P-256"; readonly x: string; readonly y: string };
  sign(data: Uint8Array): Promise<Uint8Array>;
}

export function base64url(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
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
}

export async function proofOf(
  { publicJwk, sign }: Signer,
  { method, url, nonce, now }: Proven,
): Promise<string> {
  const header = { typ: "dpop+jwt", alg: "ES256", jwk: publicJwk };
  // Its reader remembers no id, so it need not be hard to guess, and not all platforms have `crypto`.
  const jti = `${now.toString(36)}.${Math.random().toString(36).slice(2)}`;
  const claims = { jti, htm: method, htu: url, iat: Math.floor(now / 1000), ...(nonce && { nonce }) };
  const input = `${encoded(header)}.${encoded(claims)}`;
  return `${input}.${base64url(await sign(utf8.encode(input)))}`;
}
