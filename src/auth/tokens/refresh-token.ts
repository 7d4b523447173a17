/**
 * The format of refresh tokens, which only this file depends on:
 *
 *   gpr_ base64url( authorization id (16) | family (32) | rotating (32) | tag (16) )
 *
 * The family is the same in every token of one authorization, the rotating part new in each; the database holds the
 * SHA-256 of both. The tag authenticates the parts under the family, so that nobody can forge an old token.
 */
import {
  createCipheriv,
  createDecipheriv,
  createSecretKey,
  hash,
  hkdfSync,
  type KeyObject,
  timingSafeEqual,
} from "node:crypto";
import { randomBytes } from "../../platform/crypto/random.ts";

/** Identifies the token to people and to scanners for leaked secrets. */
const prefix = "gpr_";
const sizes = { id: 16, secret: 32, tag: 16 };
const tokenPattern = /^gpr_[A-Za-z0-9_-]{128}$/;

/** The parts of a refresh token. */
export interface RefreshToken {
  readonly authorizationId: string;
  readonly family: Buffer;
  readonly rotating: Buffer;
}

function idBytes(authorizationId: string): Buffer {
  return Buffer.from(authorizationId.replaceAll("-", ""), "hex");
}

/** Half of a hash over parts of fixed lengths, so that it cannot be extended, nor computed without the family. */
function tagOf(id: Buffer, family: Buffer, rotating: Buffer): Buffer {
  return hash("sha256", Buffer.concat([family, id, rotating]), "buffer").subarray(0, sizes.tag);
}

/** A token with a new rotating part, and with a new family unless one is given. */
export function newRefreshToken(
  authorizationId: string,
  family: Buffer = randomBytes(sizes.secret),
): RefreshToken {
  return { authorizationId, family, rotating: randomBytes(sizes.secret) };
}

/** The token of which the secret parts follow from another secret: whoever has that has the token, the same each time. */
export function derivedRefreshToken(authorizationId: string, secret: Buffer): RefreshToken {
  const derive = (part: string) =>
    Buffer.from(hkdfSync("sha256", createSecretKey(secret), "", `gatepost first ${part}`, sizes.secret));
  return { authorizationId, family: derive("family"), rotating: derive("rotating") };
}

/** The token as it is sent. */
export function encodeRefreshToken({ authorizationId, family, rotating }: RefreshToken): string {
  const id = idBytes(authorizationId);
  return prefix + Buffer.concat([id, family, rotating, tagOf(id, family, rotating)]).toString("base64url");
}

/** The parts of a token; undefined if `encodeRefreshToken` has not made it. */
export function decodeRefreshToken(text: string): RefreshToken | undefined {
  if (!tokenPattern.test(text)) return undefined;
  // 96 bytes are exactly 128 characters of base64url: no bits are unused, so each token has one spelling.
  const bytes = Buffer.from(text.slice(prefix.length), "base64url");
  const id = bytes.subarray(0, sizes.id);
  const family = bytes.subarray(sizes.id, sizes.id + sizes.secret);
  const rotating = bytes.subarray(sizes.id + sizes.secret, sizes.id + 2 * sizes.secret);
  if (!timingSafeEqual(bytes.subarray(-sizes.tag), tagOf(id, family, rotating))) return undefined;
  const hex = id.toString("hex");
  const authorizationId = hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
  return { authorizationId, family, rotating };
}

/** The hash of a part for the database. The parts are random, so a plain hash cannot be inverted. */
export function hashPart(part: Buffer): Buffer {
  return hash("sha256", part, "buffer");
}

/** Whether the hash is that of the part; compares in constant time. */
export function matchesHash(part: Buffer, hash: Uint8Array): boolean {
  return hash.length === 32 && timingSafeEqual(hashPart(part), hash);
}

/** As key objects, since node:crypto takes three times as long with keys that are bytes. */
function sealingKey(rotating: Buffer): KeyObject {
  const derived = hkdfSync("sha256", createSecretKey(rotating), "", "gatepost refresh successor", 32);
  return createSecretKey(Buffer.from(derived));
}

/** Encrypts the response to a refresh under the token that was presented: without that token it cannot be read. */
export function seal(rotating: Buffer, text: string): Buffer {
  const nonce = randomBytes(12);
  const cipher = createCipheriv("aes-256-gcm", sealingKey(rotating), nonce);
  const sealed = Buffer.concat([cipher.update(text, "utf8"), cipher.final()]);
  return Buffer.concat([nonce, cipher.getAuthTag(), sealed]);
}

/** Decrypts the result of `seal`; throws if it is anything else. */
export function unseal(rotating: Buffer, sealed: Buffer): string {
  const decipher = createDecipheriv("aes-256-gcm", sealingKey(rotating), sealed.subarray(0, 12));
  decipher.setAuthTag(sealed.subarray(12, 28));
  return Buffer.concat([decipher.update(sealed.subarray(28)), decipher.final()]).toString("utf8");
}
