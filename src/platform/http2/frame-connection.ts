/** A connection that reads and writes its frames itself (RFC 9113), the requests of a turn in one write. */
import type { Socket } from "node:net";
import { codeOf } from "../base/error-code.ts";
import {
  type ClientStream,
  type Connection,
  type ConnectionListener,
  type ConnectionOptions,
  noHttp2,
  type RequestHead,
  type StreamListener,
  tooManyPings,
} from "./connection.ts";
import { FloodGuard, FrameReader, FrameWriter } from "./frames.ts";
import { type HeaderSection, HeaderSections } from "./header-section.ts";
import {
  applySettings,
  ConnectionError,
  defaultPeerSettings,
  defaultWindowBytes,
  errorCode,
  flag,
  frameType,
  max31,
  ownSettings,
  protocolError,
  StreamError,
} from "./protocol.ts";
import { openSocket } from "./socket.ts";
import { connectionWindowBytes, requireSize, Streams } from "./streams.ts";

const pingBytes = 8;

export class FrameConnection implements Connection {
  readonly #listener: ConnectionListener;
  readonly #opening = new AbortController();
  #socket: Socket | undefined;
  readonly #reader = new FrameReader((type, flags, id, payload) => this.#onFrame(type, flags, id, payload));
  readonly #writer = new FrameWriter((bytes) => this.#write(bytes));
  readonly #guard = new FloodGuard();
  readonly #sections = new HeaderSections();
  readonly #peer = defaultPeerSettings();
  readonly #streams: Streams;
  #state: "connecting" | "open" | "retired" | "closed" = "connecting";
  reason = "connection closed";
  #onPong: (() => void) | undefined;

  /** @param firstStreamId odd */
  constructor(options: ConnectionOptions, listener: ConnectionListener, firstStreamId = 1) {
    this.#listener = listener;
    this.#streams = new Streams({
      writer: this.#writer,
      peer: this.#peer,
      guard: this.#guard,
      firstId: firstStreamId,
      onEmpty: () => this.#closeIfDone(),
    });
    openSocket(options, this.#opening.signal).then(
      (socket) => this.#onConnected(socket),
      (error) => {
        this.#onError(error);
        this.#onClosed();
      },
    );
  }

  get isOpen(): boolean {
    return this.#state === "open" && this.#streams.hasIds;
  }

  request(head: RequestHead, body: string | Uint8Array, listener: StreamListener): ClientStream {
    if (!this.isOpen) throw new Error("The connection takes no requests.");
    return this.#streams.request(head, body, listener);
  }

  ping(onResponse: () => void): void {
    this.#onPong = onResponse;
    this.#writer.frame(frameType.ping, 0, 0, Buffer.alloc(pingBytes));
  }

  close(): void {
    if (this.#state === "connecting") this.destroy("closed");
    if (this.#state === "open") this.#state = "retired";
    this.#closeIfDone();
  }

  #closeIfDone(): void {
    if (this.#state === "retired" && this.#streams.isEmpty) this.#leave(errorCode.noError);
  }

  /** Sends GOAWAY and closes. The peer has opened no streams, so the last one processed is 0. */
  #leave(code: number): void {
    this.#state = "closed";
    const payload = Buffer.alloc(8);
    payload.writeUInt32BE(code, 4);
    this.#writer.frame(frameType.goaway, 0, 0, payload);
    this.#writer.flush();
    this.#socket?.destroySoon();
  }

  destroy(reason: string): void {
    this.reason = reason;
    this.#state = "closed";
    this.#opening.abort();
    this.#socket?.destroy();
  }

  #onConnected(socket: Socket): void {
    this.#socket = socket;
    socket.on("data", (bytes) => this.#onBytes(bytes));
    socket.on("error", (error) => this.#onError(error));
    socket.on("close", () => this.#onClosed());
    this.#writer.preface();
    this.#writer.frame(frameType.settings, 0, 0, ownSettings);
    this.#writer.number(frameType.windowUpdate, 0, connectionWindowBytes - defaultWindowBytes);
    if (this.#opening.signal.aborted) socket.destroy();
  }

  #onError(error: Error): void {
    if (!this.#opening.signal.aborted) this.reason = codeOf(error) ?? error.name;
  }

  #write(bytes: Buffer): void {
    if (!this.#socket?.writable) return;
    this.#streams.markPassed();
    this.#socket.write(bytes);
  }

  #onClosed(): void {
    this.#state = "closed";
    this.#streams.endAll();
    this.#listener.onClosed();
  }

  #onBytes(bytes: Buffer): void {
    if (this.#state === "closed") return;
    try {
      this.#reader.read(bytes);
    } catch (error) {
      if (!(error instanceof ConnectionError)) throw error;
      this.#abort(error);
    }
  }

  #abort({ message, code }: ConnectionError): void {
    if (this.#state === "connecting") {
      // Before its settings, a peer that breaks the protocol speaks another one.
      this.destroy(noHttp2);
      return;
    }
    this.reason = `HTTP/2: ${message}`;
    // The requests do not wait until the peer has read why.
    this.#leave(code);
    this.#listener.onRetired();
    this.#streams.endAll();
  }

  #onFrame(type: number, flags: number, streamId: number, payload: Buffer): void {
    if (this.#state === "closed") return;
    try {
      this.#dispatch(type, flags, streamId, payload);
    } catch (error) {
      if (!(error instanceof StreamError)) throw error;
      this.#streams.reset(streamId, error.code);
    }
  }

  #dispatch(type: number, flags: number, streamId: number, payload: Buffer): void {
    const isFirst = this.#state === "connecting";
    if (isFirst && (type !== frameType.settings || (flags & flag.ack) !== 0)) {
      throw protocolError("the first frame is not SETTINGS");
    }
    if (this.#sections.continued !== undefined && type !== frameType.continuation) {
      throw protocolError("a frame within a header block");
    }
    requireStream(type, streamId);
    switch (type) {
      case frameType.data:
        this.#streams.onData(flags, streamId, payload);
        break;
      case frameType.headers:
        this.#onSection(this.#sections.begin(flags, streamId, payload));
        break;
      case frameType.continuation:
        this.#guard.count();
        this.#onSection(this.#sections.continue(flags, streamId, payload));
        break;
      case frameType.rstStream:
        requireSize(payload, 4);
        this.#streams.onReset(streamId, payload.readUInt32BE(0));
        break;
      case frameType.settings:
        this.#onSettings(flags, payload);
        break;
      case frameType.pushPromise:
        throw protocolError("a pushed response, which we have disabled");
      case frameType.ping:
        this.#onPing(flags, payload);
        break;
      case frameType.goaway:
        this.#onGoaway(payload);
        break;
      case frameType.windowUpdate:
        requireSize(payload, 4);
        this.#streams.onWindowUpdate(streamId, payload.readUInt32BE(0) & max31);
        break;
      default:
        // PRIORITY is deprecated, and types that nobody has defined yet are ignored (sections 5.3.2 and 5.5).
        this.#guard.count();
    }
  }

  #onSection(section: HeaderSection | undefined): void {
    if (section) this.#streams.onHeaders(section);
  }

  #onSettings(flags: number, payload: Buffer): void {
    this.#guard.count();
    if ((flags & flag.ack) !== 0) {
      requireSize(payload, 0);
      return;
    }
    const previousWindow = this.#peer.initialWindowSize;
    applySettings(payload, this.#peer);
    this.#streams.applySettings(previousWindow);
    this.#writer.frame(frameType.settings, flag.ack, 0, Buffer.alloc(0));
    if (this.#state === "connecting") this.#state = "open";
    this.#listener.onSettings(this.#peer.maxConcurrentStreams);
  }

  #onPing(flags: number, payload: Buffer): void {
    this.#guard.count();
    requireSize(payload, pingBytes);
    if ((flags & flag.ack) === 0) this.#writer.frame(frameType.ping, flag.ack, 0, payload);
    else {
      const onPong = this.#onPong;
      this.#onPong = undefined;
      onPong?.();
    }
  }

  #onGoaway(payload: Buffer): void {
    this.#guard.count();
    if (payload.length < 8) throw new ConnectionError(errorCode.frameSizeError, "the size of GOAWAY");
    const code = payload.readUInt32BE(4);
    if (code !== errorCode.noError) this.reason = `GOAWAY ${code}`;
    if (code === errorCode.enhanceYourCalm && payload.toString("latin1", 8) === "too_many_pings") {
      this.reason = tooManyPings;
    }
    if (this.#state === "open") this.#state = "retired";
    // First this, so that what is repeated is not sent here again.
    this.#listener.onRetired();
    this.#streams.endAbove(payload.readUInt32BE(0) & max31);
    this.#closeIfDone();
  }
}

/** Frames of a stream name one, and those of the connection none (section 6). */
function requireStream(type: number, streamId: number): void {
  const isOfConnection = type === frameType.settings || type === frameType.ping || type === frameType.goaway;
  const isOfStream = type <= frameType.continuation && !isOfConnection && type !== frameType.windowUpdate;
  if (isOfConnection ? streamId !== 0 : isOfStream && streamId === 0) {
    throw protocolError("a frame on the wrong stream");
  }
}
