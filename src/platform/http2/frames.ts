/** Frames (RFC 9113 section 4.1): reading and writing them, and how many may come for nothing. */
import {
  ConnectionError,
  defaultFrameBytes,
  errorCode,
  flag,
  frameHeaderBytes,
  frameType,
  max31,
} from "./protocol.ts";

/** Takes a frame. The payload is not overwritten later. */
type OnFrame = (type: number, flags: number, streamId: number, payload: Buffer) => void;

/** From the bytes of a connection, however those are cut, to frames. */
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

const slabBytes = 131_072;
/** The preface that every client begins with (section 3.4). */
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/** From frames to the bytes of a connection, one write for those of a turn of the event loop. */
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

/** Most frames between two responses that bring none nearer, within the time below. */
const maxIdleFrames = 10_000;
const withinMs = 10_000;

/** Limits frames that bring no response nearer, above all PING and SETTINGS, which must be acknowledged. */
export class FloodGuard {
  #frames = 0;
  #since = performance.now();

  /** Counts a frame. @throws ConnectionError with ENHANCE_YOUR_CALM if there are too many */
  count(): void {
    this.#frames += 1;
    if (this.#frames <= maxIdleFrames) return;
    const now = performance.now();
    if (now - this.#since < withinMs)
      throw new ConnectionError(errorCode.enhanceYourCalm, "a flood of frames");
    this.#frames = 0;
    this.#since = now;
  }

  reset(): void {
    // The time is only looked at when there are too many, so a flood is noticed after twice as many at the latest.
    this.#frames = 0;
  }
}
