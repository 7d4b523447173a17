/** The requests of a connection (RFC 9113 sections 5.1 and 8.1). */
import type { ClientStream, RequestHead, StreamEnd, StreamListener } from "./connection.ts";
import type { FloodGuard, FrameWriter } from "./frames.ts";
import { type HeaderSection, ResponseReader, unpadded } from "./header-section.ts";
import { HpackEncoder } from "./hpack-encoder.ts";
import {
  ConnectionError,
  defaultWindowBytes,
  errorCode,
  flag,
  frameType,
  max31,
  type PeerSettings,
  protocolError,
  StreamError,
} from "./protocol.ts";
import { BodySender, ReceiveWindow, Stream, StreamTable } from "./stream.ts";

/** Bytes that we accept on the whole connection, so that responses of many streams do not wait for each other. */
export const connectionWindowBytes = 1_048_576;

interface StreamsOptions {
  readonly writer: FrameWriter;
  readonly peer: PeerSettings;
  readonly guard: FloodGuard;
  /** Id of the first stream: odd. */
  readonly firstId: number;
  readonly onEmpty: () => void;
}

export class Streams {
  readonly #writer: FrameWriter;
  readonly #peer: PeerSettings;
  readonly #guard: FloodGuard;
  readonly #onEmpty: () => void;
  readonly #encoder = new HpackEncoder();
  readonly #responses = new ResponseReader();
  readonly #bodies: BodySender;
  readonly #receiveWindow = new ReceiveWindow(connectionWindowBytes);
  readonly #open = new StreamTable();
  #nextId: number;
  /** No stream above it has been passed to the socket. */
  #passedId = 0;
  readonly #onCancel = (stream: Stream) => this.reset(stream.id, errorCode.cancel);

  constructor({ writer, peer, guard, firstId, onEmpty }: StreamsOptions) {
    this.#writer = writer;
    this.#peer = peer;
    this.#guard = guard;
    this.#nextId = firstId;
    this.#onEmpty = onEmpty;
    this.#bodies = new BodySender(writer);
  }

  get isEmpty(): boolean {
    return this.#open.size === 0;
  }

  /** Whether ids are left (section 5.1.1). */
  get hasIds(): boolean {
    return this.#nextId <= max31;
  }

  /** @throws TypeError for what is not valid in HTTP */
  request(head: RequestHead, body: string | Uint8Array, listener: StreamListener): ClientStream {
    const block = this.#encoder.encode(head);
    const stream = new Stream(this.#nextId, listener, this.#peer.initialWindowSize, this.#onCancel);
    this.#nextId += 2;
    this.#open.add(stream);
    this.#writer.headers(stream.id, block, body.length === 0);
    if (body.length > 0) this.#bodies.send(stream, body);
    return stream;
  }

  /** Everything written so far is being passed to the socket: from now on, the peer may have it. */
  markPassed(): void {
    this.#passedId = this.#nextId - 2;
  }

  applySettings(previousWindow: number): void {
    this.#encoder.setPeerTableSize(this.#peer.headerTableSize);
    const difference = this.#peer.initialWindowSize - previousWindow;
    if (difference !== 0) this.#bodies.changeWindows(this.#open.all(), difference);
  }

  onHeaders({ streamId, isEnd, block }: HeaderSection): void {
    const stream = this.#find(streamId);
    if (stream === undefined) return;
    if (stream.hasResponse) {
      if (!isEnd) throw new StreamError(errorCode.protocolError, "trailers that end nothing");
      const trailers = this.#responses.trailers(block);
      stream.listener.onTrailers?.(trailers);
    } else {
      const { status, fields, bodyBytes } = this.#responses.head(block);
      if (status < 200) {
        if (isEnd) throw new StreamError(errorCode.protocolError, "an interim response that ends");
        this.#guard.count();
        return;
      }
      stream.hasResponse = true;
      stream.expectedBytes = bodyBytes;
      stream.listener.onResponse(status, fields);
    }
    if (isEnd) this.#complete(stream);
  }

  onData(flags: number, streamId: number, payload: Buffer): void {
    const data = unpadded(flags, payload);
    // What is thrown away counts too.
    this.#reopen(0, this.#receiveWindow, payload.length);
    const stream = this.#find(streamId);
    if (stream === undefined) return;
    if (!stream.hasResponse) throw new StreamError(errorCode.protocolError, "a body without a response");
    const isEnd = (flags & flag.endStream) !== 0;
    if (!isEnd || stream.receiveWindow) {
      stream.receiveWindow ??= new ReceiveWindow(defaultWindowBytes);
      this.#reopen(streamId, stream.receiveWindow, payload.length);
    }
    if (stream.expectedBytes !== undefined) {
      stream.expectedBytes -= data.length;
      if (stream.expectedBytes < 0)
        throw new StreamError(errorCode.protocolError, "more of a body than announced");
    }
    if (data.length > 0) stream.listener.onData(data);
    else if (!isEnd) this.#guard.count();
    if (isEnd) this.#complete(stream);
  }

  #reopen(streamId: number, window: ReceiveWindow, bytes: number): void {
    const increment = window.take(bytes);
    if (increment > 0) this.#writer.number(frameType.windowUpdate, streamId, increment);
  }

  onReset(streamId: number, code: number): void {
    const stream = this.#find(streamId);
    if (stream === undefined) return;
    const isUnprocessed = code === errorCode.refusedStream && !stream.hasResponse;
    this.#end(stream, { resetCode: code, isUnprocessed, isComplete: false });
  }

  onWindowUpdate(streamId: number, increment: number): void {
    this.#guard.count();
    if (streamId === 0) {
      if (increment === 0) throw protocolError("WINDOW_UPDATE of 0");
      this.#bodies.open(increment);
      return;
    }
    const stream = this.#find(streamId);
    if (stream === undefined) return;
    if (increment === 0) throw new StreamError(errorCode.protocolError, "WINDOW_UPDATE of 0");
    this.#bodies.openStream(stream, increment);
  }

  /** The peer processes no stream above this one (section 6.8). */
  endAbove(lastId: number): void {
    for (const stream of this.#open.all()) {
      if (stream.id > lastId)
        this.#end(stream, { resetCode: undefined, isUnprocessed: !stream.hasResponse, isComplete: false });
    }
  }

  endAll(): void {
    for (const stream of this.#open.all()) {
      this.#end(stream, {
        resetCode: undefined,
        isUnprocessed: stream.id > this.#passedId,
        isComplete: false,
      });
    }
  }

  /** Ends a stream with RST_STREAM, if it is open. */
  reset(streamId: number, code: number): void {
    const stream = this.#open.get(streamId);
    if (stream === undefined) return;
    this.#writer.number(frameType.rstStream, streamId, code);
    this.#end(stream, { resetCode: undefined, isUnprocessed: false, isComplete: false });
  }

  /** The stream, if it is open; frames of an ended one are ignored. @throws ConnectionError for one that never was */
  #find(streamId: number): Stream | undefined {
    const stream = this.#open.get(streamId);
    if (stream === undefined) {
      if (streamId % 2 === 0 || streamId >= this.#nextId) throw protocolError("a stream that was not opened");
      this.#guard.count();
    }
    return stream;
  }

  #complete(stream: Stream): void {
    if (stream.expectedBytes) throw new StreamError(errorCode.protocolError, "less of a body than announced");
    this.#guard.reset();
    // A response may come before the body is sent; the rest is not wanted then (section 8.1).
    if (stream.unsent) this.#writer.number(frameType.rstStream, stream.id, errorCode.cancel);
    this.#end(stream, { resetCode: undefined, isUnprocessed: false, isComplete: true });
  }

  #end(stream: Stream, end: StreamEnd): void {
    // A listener may have cancelled it meanwhile.
    if (!this.#open.remove(stream)) return;
    if (stream.unsent) this.#bodies.forget(stream);
    stream.listener.onEnd(end);
    if (this.#open.size === 0) this.#onEmpty();
  }
}

/** @throws ConnectionError if the payload does not have exactly this size */
export function requireSize(payload: Buffer, bytes: number): void {
  if (payload.length !== bytes) throw new ConnectionError(errorCode.frameSizeError, "the size of a frame");
}
