/** Reads frames (RFC 9113 section 4.1) from the bytes of a connection, however those are cut. */
import { ConnectionError, defaultFrameBytes, errorCode, frameHeaderBytes, max31 } from "./protocol.ts";

/** Takes a frame. The payload is not overwritten later. */
type OnFrame = (type: number, flags: number, streamId: number, payload: Buffer) => void;

export class FrameReader {
  readonly #onFrame: OnFrame;
  /** The header of a frame that has come in part. */
  readonly #header = Buffer.alloc(frameHeaderBytes);
  #headerBytes = 0;
  /** The payload of a frame whose header is complete, and how much of it has come. */
  #payload: Buffer | undefined;
  #payloadBytes = 0;

  constructor(onFrame: OnFrame) {
    this.#onFrame = onFrame;
  }

  /** @throws ConnectionError for a frame that is longer than we allow, and what `onFrame` throws */
  read(bytes: Buffer): void {
    let at = this.#readRest(bytes, 0);
    while (bytes.length - at >= frameHeaderBytes) {
      const start = at + frameHeaderBytes;
      const end = start + lengthIn(bytes, at);
      if (end > bytes.length) break;
      this.#emit(bytes, at, bytes.subarray(start, end));
      at = end;
    }
    while (at < bytes.length) at = this.#readRest(bytes, this.#keepHeader(bytes, at));
  }

  /** Goes on with the frame that has come in part, if there is one. @returns where the next one begins */
  #readRest(bytes: Buffer, from: number): number {
    let at = from;
    if (this.#payload === undefined && this.#headerBytes > 0) at = this.#keepHeader(bytes, at);
    if (this.#payload === undefined) return at;
    const copied = bytes.copy(this.#payload, this.#payloadBytes, at);
    this.#payloadBytes += copied;
    if (this.#payloadBytes === this.#payload.length) {
      const payload = this.#payload;
      this.#payload = undefined;
      this.#headerBytes = 0;
      this.#emit(this.#header, 0, payload);
    }
    return at + copied;
  }

  #keepHeader(bytes: Buffer, at: number): number {
    const copied = bytes.copy(this.#header, this.#headerBytes, at, at + frameHeaderBytes - this.#headerBytes);
    this.#headerBytes += copied;
    if (this.#headerBytes === frameHeaderBytes) {
      this.#payload = Buffer.allocUnsafe(lengthIn(this.#header, 0));
      this.#payloadBytes = 0;
    }
    return at + copied;
  }

  #emit(header: Buffer, at: number, payload: Buffer): void {
    this.#onFrame(
      header.readUInt8(at + 3),
      header.readUInt8(at + 4),
      header.readUInt32BE(at + 5) & max31,
      payload,
    );
  }
}

function lengthIn(header: Buffer, at: number): number {
  const length = header.readUIntBE(at, 3);
  if (length > defaultFrameBytes) throw new ConnectionError(errorCode.frameSizeError, "a frame is too long");
  return length;
}
