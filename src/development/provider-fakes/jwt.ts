/**
 * Decodes compact JWTs and verifies their signatures. Synchronous, so that requests are checked in the order in
 * which they arrive.
 */
import { type KeyObject, verify } from "node:crypto";

export interface Jwt {
  readonly header: Readonly<Record<string, unknown>>;
  readonly claims: Readonly<Record<string, unknown>>;
  /** The bytes that are signed: header, dot, claims. */
  readonly signed: Buffer;
  readonly signature: Buffer;
}

/** Undefined if the text is no JWT. */
export function decodeJwt(text: string): Jwt | undefined {
  const parts = text.split(".");
  const [header, claims, signature] = parts;
  if (parts.length !== 3 || !header || !claims || !signature) return undefined;
  const [headerJson, claimsJson] = [jsonObject(header), jsonObject(claims)];
  if (!headerJson || !claimsJson) return undefined;
  return {
    header: headerJson,
    claims: claimsJson,
    signed: Buffer.from(`${header}.${claims}`, "latin1"),
    signature: Buffer.from(signature, "base64url"),
  };
}

/** Whether the key has signed the JWT with `alg`, and the header names `alg`. */
export function isSignedBy(jwt: Jwt, alg: "ES256" | "RS256", key: KeyObject): boolean {
  if (jwt.header["alg"] !== alg) return false;
  // A JWS has an ECDSA signature as r and s, not as DER (RFC 7518 section 3.4).
  return verify("sha256", jwt.signed, { key, dsaEncoding: "ieee-p1363" }, jwt.signature);
}

function jsonObject(base64url: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(Buffer.from(base64url, "base64url").toString());
    return typeof value === "object" && value !== null ? { ...value } : undefined;
  } catch {
    return undefined;
  }
}
