/** Decrypts push messages as a browser does: RFC 8291 over RFC 8188, aes128gcm. */
import { createDecipheriv, createECDH, hkdfSync } from "node:crypto";
import type { SubscriptionKeys } from "./subscriptions.ts";

const saltBytes = 16;
const headerBytes = saltBytes + 4 + 1;
const tagBytes = 16;
/** An uncompressed point on P-256. */
const pointBytes = 65;
/** The smallest record size of RFC 8188 section 2.1: a tag, the delimiter and one byte. */
const minRecordSize = 18;

/**
 * @param body of the request
 * @throws Error that says why a browser would discard the message
 */
export function decryptPushMessage(body: Buffer, keys: SubscriptionKeys): string {
  if (body.length < headerBytes + pointBytes + tagBytes + 1)
    throw new Error("The body is too short to be aes128gcm.");
  const salt = body.subarray(0, saltBytes);
  const recordSize = body.readUInt32BE(saltBytes);
  const idLength = body.readUInt8(headerBytes - 1);
  if (idLength !== pointBytes) throw new Error("The keyid of the header is not a public key of 65 bytes.");
  const senderKey = body.subarray(headerBytes, headerBytes + idLength);
  const record = body.subarray(headerBytes + idLength);
  if (recordSize < minRecordSize) throw new Error("The record size is below 18.");
  if (record.length > recordSize) throw new Error("A push message has one record, this one has more.");

  const { key, nonce } = contentKeys(senderKey, salt, keys);
  const decipher = createDecipheriv("aes-128-gcm", key, nonce);
  decipher.setAuthTag(record.subarray(-tagBytes));
  let padded: Buffer;
  try {
    padded = Buffer.concat([decipher.update(record.subarray(0, -tagBytes)), decipher.final()]);
  } catch {
    throw new Error("It is encrypted for other keys, or damaged.");
  }
  return withoutPadding(padded).toString();
}

/** RFC 8291, section 3.4. */
function contentKeys(
  senderKey: Buffer,
  salt: Buffer,
  { privateKey, publicKey, auth }: SubscriptionKeys,
): { key: Buffer; nonce: Buffer } {
  const secret = sharedSecret(privateKey, senderKey);
  const info = Buffer.concat([Buffer.from("WebPush: info\0"), publicKey, senderKey]);
  const inputKey = Buffer.from(hkdfSync("sha256", secret, auth, info, 32));
  return {
    key: Buffer.from(hkdfSync("sha256", inputKey, salt, "Content-Encoding: aes128gcm\0", 16)),
    nonce: Buffer.from(hkdfSync("sha256", inputKey, salt, "Content-Encoding: nonce\0", 12)),
  };
}

function sharedSecret(privateKey: Buffer, senderKey: Buffer): Buffer {
  const ecdh = createECDH("prime256v1");
  ecdh.setPrivateKey(privateKey);
  try {
    return ecdh.computeSecret(senderKey);
  } catch {
    throw new Error("The sender's public key is no point on P-256.");
  }
}

/** The last record ends with 2 and zeros. */
function withoutPadding(padded: Buffer): Buffer {
  let end = padded.length - 1;
  while (end >= 0 && padded[end] === 0) end -= 1;
  if (padded[end] !== 2) throw new Error("The padding has no delimiter of the last record.");
  return padded.subarray(0, end);
}
