/** The part of `http_ece` that is used: encryption by RFC 8188, keys by RFC 8291. */
declare module "http_ece" {
  import type { ECDH } from "node:crypto";

  interface WebPushParameters {
    readonly version: "aes128gcm";
    /** The sender's key pair; a new one for each message. */
    readonly privateKey: ECDH;
    /** The receiver's public key, an uncompressed point. */
    readonly dh: Buffer;
    /** 16 bytes. */
    readonly authSecret: Buffer;
  }

  const ece: {
    /** @throws if `dh` is no point of the curve */
    encrypt(plaintext: Buffer, parameters: WebPushParameters): Buffer;
  };
  export default ece;
}
