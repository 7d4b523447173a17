/** Sends the bodies of requests, as far as the peer's windows allow (RFC 9113 section 5.2). */
import type { FrameWriter } from "./frame-writer.ts";
import {
  ConnectionError,
  defaultFrameBytes,
  defaultWindowBytes,
  errorCode,
  flag,
  frameType,
  max31,
  StreamError,
} from "./protocol.ts";
import type { Stream } from "./stream.ts";

export class BodySender {
  readonly #writer: FrameWriter;
  /** Bytes that the peer still accepts on the whole connection. */
  #window = defaultWindowBytes;
  /** Streams with an unsent rest, the oldest first. */
  readonly #blocked = new Set<Stream>();

  constructor(writer: FrameWriter) {
    this.#writer = writer;
  }

  /** @param body is not changed until the stream has ended */
  send(stream: Stream, body: string | Uint8Array): void {
    // A character of UTF-16 has at most three bytes in UTF-8.
    const most = typeof body === "string" ? body.length * 3 : body.length;
    if (most <= this.#window && most <= stream.sendWindow && most <= defaultFrameBytes) {
      this.#count(stream, this.#writer.body(stream.id, body));
      return;
    }
    stream.unsent = typeof body === "string" ? Buffer.from(body) : body;
    this.#blocked.add(stream);
    this.#sendRest(stream, stream.unsent);
  }

  #sendRest(stream: Stream, unsent: Uint8Array): void {
    let rest = unsent;
    for (;;) {
      const bytes = Math.min(rest.length, this.#window, stream.sendWindow, defaultFrameBytes);
      if (bytes <= 0) break;
      const isEnd = bytes === rest.length;
      this.#writer.frame(frameType.data, isEnd ? flag.endStream : 0, stream.id, rest.subarray(0, bytes));
      this.#count(stream, bytes);
      if (isEnd) {
        this.forget(stream);
        return;
      }
      rest = rest.subarray(bytes);
    }
    stream.unsent = rest;
  }

  #count(stream: Stream, bytes: number): void {
    this.#window -= bytes;
    stream.sendWindow -= bytes;
  }

  #continue(): void {
    for (const stream of this.#blocked) {
      if (this.#window <= 0) return;
      if (stream.unsent) this.#sendRest(stream, stream.unsent);
    }
  }

  /** Sends nothing more of this stream. */
  forget(stream: Stream): void {
    stream.unsent = undefined;
    this.#blocked.delete(stream);
  }

  /** Opens the connection's window. @throws ConnectionError beyond its limit (section 6.9.1) */
  open(increment: number): void {
    this.#window += increment;
    if (this.#window > max31) throw new ConnectionError(errorCode.flowControlError, "a window is too large");
    this.#continue();
  }

  /** Opens a stream's window. @throws StreamError beyond its limit */
  openStream(stream: Stream, increment: number): void {
    stream.sendWindow += increment;
    if (stream.sendWindow > max31) throw new StreamError(errorCode.flowControlError, "a window is too large");
    if (stream.unsent) this.#sendRest(stream, stream.unsent);
  }

  /** The initial window of streams has changed, and with it those of the open ones (section 6.9.2). */
  changeWindows(streams: Iterable<Stream>, difference: number): void {
    for (const stream of streams) {
      stream.sendWindow += difference;
      if (stream.sendWindow > max31)
        throw new ConnectionError(errorCode.flowControlError, "a window is too large");
    }
    this.#continue();
  }
}
