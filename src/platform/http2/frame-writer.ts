/** From frames to the bytes of a connection (RFC 9113 section 4.1), one write for those of a turn of the event loop. */
import { defaultFrameBytes, flag, frameHeaderBytes, frameType } from "./protocol.ts";

const slabBytes = 131_072;
/** The preface that every client begins with (section 3.4). */
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

export class FrameWriter {
  readonly #onBytes: (bytes: Buffer) => void;
  /** Bytes are written here once and then passed on, so none is copied or written over while a socket has it. */
  #slab = Buffer.allocUnsafeSlow(slabBytes);
  #start = 0;
  #end = 0;
  #isScheduled = false;

  /** @param onBytes is called once in a turn, after I/O */
  constructor(onBytes: (bytes: Buffer) => void) {
    this.#onBytes = onBytes;
  }

  preface(): void {
    this.#reserve(preface.length);
    this.#end += this.#slab.write(preface, this.#end, "latin1");
  }

  frame(type: number, flags: number, streamId: number, payload: Uint8Array): void {
    this.#reserve(frameHeaderBytes + payload.length);
    this.#header(payload.length, type, flags, streamId);
    this.#slab.set(payload, this.#end);
    this.#end += payload.length;
  }

  /** A frame whose payload is one integer of 32 bits: RST_STREAM and WINDOW_UPDATE. */
  number(type: number, streamId: number, value: number): void {
    this.#reserve(frameHeaderBytes + 4);
    this.#header(4, type, 0, streamId);
    this.#end = this.#slab.writeUInt32BE(value, this.#end);
  }

  /** HEADERS, with CONTINUATION if the block needs it. @param isEnd whether the request has no body */
  headers(streamId: number, block: Uint8Array, isEnd: boolean): void {
    let type: number = frameType.headers;
    let flags: number = isEnd ? flag.endStream : 0;
    for (let at = 0; at < block.length; at += defaultFrameBytes) {
      const isLast = at + defaultFrameBytes >= block.length;
      const part = isLast && at === 0 ? block : block.subarray(at, at + defaultFrameBytes);
      if (isLast) flags |= flag.endHeaders;
      this.frame(type, flags, streamId, part);
      type = frameType.continuation;
      flags = 0;
    }
  }

  /** DATA with a whole body of at most `defaultFrameBytes`, which ends the stream. @returns the bytes of the body */
  body(streamId: number, body: string | Uint8Array): number {
    if (typeof body !== "string") {
      this.frame(frameType.data, flag.endStream, streamId, body);
      return body.length;
    }
    this.#reserve(frameHeaderBytes + Math.min(body.length * 3, defaultFrameBytes));
    const length = this.#slab.write(body, this.#end + frameHeaderBytes, "utf8");
    this.#header(length, frameType.data, flag.endStream, streamId);
    this.#end += length;
    return length;
  }

  #header(length: number, type: number, flags: number, streamId: number): void {
    const slab = this.#slab;
    let at = slab.writeUIntBE(length, this.#end, 3);
    at = slab.writeUInt8(type, at);
    at = slab.writeUInt8(flags, at);
    this.#end = slab.writeUInt32BE(streamId, at);
  }

  /** Makes room, in a new slab if need be, and sees to it that the bytes are passed on. */
  #reserve(bytes: number): void {
    if (this.#slab.length - this.#end < bytes) {
      const pending = this.#slab.subarray(this.#start, this.#end);
      this.#slab = Buffer.allocUnsafeSlow(Math.max(slabBytes, (pending.length + bytes) * 2));
      this.#slab.set(pending);
      this.#end = pending.length;
      this.#start = 0;
    }
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => this.flush());
  }

  /** Passes on what has been written, without waiting for the end of the turn. */
  flush(): void {
    this.#isScheduled = false;
    const bytes = this.#slab.subarray(this.#start, this.#end);
    this.#start = this.#end;
    if (bytes.length > 0) this.#onBytes(bytes);
  }
}
