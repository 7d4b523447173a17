/** Encrypts push messages (RFC 8291) with Web Crypto, independently of the fake, which decrypts with node:crypto. */
import { webcrypto } from "node:crypto";
import type { PushSubscription } from "../../../../src/development/provider-fakes/webpush/subscriptions.ts";

const { subtle } = webcrypto;
const ecdh = { name: "ECDH", namedCurve: "P-256" };

interface Form {
  readonly recordSize?: number;
  /** What follows the text in the record; 2 is the delimiter of the last record. */
  readonly ending?: readonly number[];
}

/** The body of the request. */
export async function encryptPush(
  { keys }: PushSubscription,
  text: string,
  { recordSize = 4096, ending = [2] }: Form = {},
): Promise<Buffer> {
  const browserKey = Buffer.from(keys.p256dh, "base64url");
  const own = await subtle.generateKey(ecdh, true, ["deriveBits"]);
  const ownKey = Buffer.from(await subtle.exportKey("raw", own.publicKey));
  const browser = await subtle.importKey("raw", browserKey, ecdh, false, []);
  const secret = await subtle.deriveBits({ name: "ECDH", public: browser }, own.privateKey, 256);
  const inputKey = await hkdf(
    secret,
    Buffer.from(keys.auth, "base64url"),
    Buffer.concat([Buffer.from("WebPush: info\0"), browserKey, ownKey]),
    32,
  );
  const salt = webcrypto.getRandomValues(Buffer.alloc(16));
  const key = await hkdf(inputKey, salt, Buffer.from("Content-Encoding: aes128gcm\0"), 16);
  const iv = await hkdf(inputKey, salt, Buffer.from("Content-Encoding: nonce\0"), 12);
  const record = await subtle.encrypt(
    { name: "AES-GCM", iv },
    await subtle.importKey("raw", key, "AES-GCM", false, ["encrypt"]),
    Buffer.concat([Buffer.from(text), Buffer.from(ending)]),
  );
  const head = Buffer.alloc(5);
  head.writeUInt32BE(recordSize);
  head.writeUInt8(ownKey.length, 4);
  return Buffer.concat([salt, head, ownKey, Buffer.from(record)]);
}

async function hkdf(secret: ArrayBuffer, salt: Buffer, info: Buffer, length: number): Promise<ArrayBuffer> {
  const key = await subtle.importKey("raw", secret, "HKDF", false, ["deriveBits"]);
  return subtle.deriveBits({ name: "HKDF", hash: "SHA-256", salt, info }, key, length * 8);
}
