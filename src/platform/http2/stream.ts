/** One stream: a request and its response on the wire, the windows of both, and the table of those that are open. */
import type { ClientStream, StreamListener } from "./connection.ts";
import type { FrameWriter } from "./frames.ts";
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

/** One request on the wire, from its HEADERS to the end of its response. */
export class Stream implements ClientStream {
  readonly id: number;
  readonly listener: StreamListener;
  /** Bytes of the body that the peer still accepts. Negative if its settings have taken back what was sent already. */
  sendWindow: number;
  /** The rest of the body while the peer's windows are full. */
  unsent: Uint8Array | undefined;
  hasResponse = false;
  /** Bytes of the response's body that are to come, if it has announced them. */
  expectedBytes: number | undefined;
  /** Made for responses of more than one DATA frame, which are few. */
  receiveWindow: ReceiveWindow | undefined;
  readonly #onCancel: (stream: Stream) => void;

  constructor(id: number, listener: StreamListener, sendWindow: number, onCancel: (stream: Stream) => void) {
    this.id = id;
    this.listener = listener;
    this.sendWindow = sendWindow;
    this.#onCancel = onCancel;
  }

  cancel(): void {
    this.#onCancel(this);
  }
}

/** The first size of a {@link StreamTable}; all are powers of two. */
const firstSize = 128;

/** The open streams by ids, which count up by two; where two would have one slot, it grows (base/deadlines.ts). */
export class StreamTable {
  #places: (Stream | undefined)[] = empty(firstSize);
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get(id: number): Stream | undefined {
    const stream = this.#places[this.#placeOf(id)];
    return stream?.id === id ? stream : undefined;
  }

  add(stream: Stream): void {
    while (this.#places[this.#placeOf(stream.id)] !== undefined) this.#grow();
    this.#places[this.#placeOf(stream.id)] = stream;
    this.#size += 1;
  }

  /** @returns whether it was there */
  remove(stream: Stream): boolean {
    const place = this.#placeOf(stream.id);
    if (this.#places[place] !== stream) return false;
    this.#places[place] = undefined;
    this.#size -= 1;
    return true;
  }

  /** All streams, in no order. */
  all(): Stream[] {
    return this.#places.filter((stream) => stream !== undefined);
  }

  #placeOf(id: number): number {
    return (id >>> 1) & (this.#places.length - 1);
  }

  /** Streams at different places keep different places in a table of twice the size. */
  #grow(): void {
    const streams = this.all();
    this.#places = empty(this.#places.length * 2);
    for (const stream of streams) this.#places[this.#placeOf(stream.id)] = stream;
  }
}

function empty(size: number): (Stream | undefined)[] {
  return Array.from({ length: size }, () => undefined);
}

/** What the peer may still send, on a stream or on the connection (RFC 9113 section 5.2). Opened again at its half. */
export class ReceiveWindow {
  readonly #size: number;
  #used = 0;

  constructor(size: number) {
    this.#size = size;
  }

  /** Counts a DATA frame's payload, padding included. @returns the increment of WINDOW_UPDATE; 0: not yet */
  take(bytes: number): number {
    this.#used += bytes;
    if (this.#used < this.#size / 2) return 0;
    const increment = this.#used;
    this.#used = 0;
    return increment;
  }
}

/** Sends the bodies of requests, as far as the peer's windows allow (RFC 9113 section 5.2). */
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
