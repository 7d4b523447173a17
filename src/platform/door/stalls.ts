/** Ends what does not get on: responses that the client does not read, and requests that it never ends. */
import { constants, type ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import { Slots } from "../base/deadlines.ts";
import { cutSession } from "./handshakes.ts";
import { resetStream } from "./resets.ts";

export interface StallLimits {
  /** The time from the first byte of a request to its end. */
  readonly requestMs: number;
  /** The time that a chunk of a response waits for the client to read it. */
  readonly responseMs: number;
}

export const stallLimits: StallLimits = { requestMs: 30_000, responseMs: 60_000 };

/** Passes in each of these times: a stall is noticed a fourth of the time late, at most. */
const passes = 4;

/** A connection or stream, and how far its response had got. A pause of this process is no client's. */
abstract class Watched {
  #written: number | undefined;
  #age = 0;
  #unread = 0;

  /** Whether the client has been given its time. @param ms since the last pass, or less */
  isStalled(ms: number, { requestMs, responseMs }: StallLimits): boolean {
    const written = this.written();
    this.#age += ms;
    this.#unread = written !== undefined && written === this.#written ? this.#unread + ms : 0;
    this.#written = written;
    return this.#unread >= responseMs || (this.#age >= requestMs && !this.isRequestOver());
  }

  /** @returns a number that changes with each chunk that is sent; undefined if nothing waits for the client */
  protected abstract written(): number | undefined;
  protected abstract isRequestOver(): boolean;
  abstract end(): void;
}

class WatchedSocket extends Watched {
  readonly #socket: Socket;

  constructor(socket: Socket) {
    super();
    this.#socket = socket;
  }

  protected override written(): number | undefined {
    const { writableLength, bytesWritten } = this.#socket;
    return writableLength > 0 ? bytesWritten - writableLength : undefined;
  }

  /** Node has limits for that. */
  protected override isRequestOver(): boolean {
    return true;
  }

  override end(): void {
    this.#socket.destroy();
  }
}

class WatchedStream extends Watched {
  readonly #stream: ServerHttp2Stream;
  readonly #isConversation: boolean;

  constructor(stream: ServerHttp2Stream, isConversation: boolean) {
    super();
    this.#stream = stream;
    this.#isConversation = isConversation;
  }

  protected override written(): number | undefined {
    const { writableLength } = this.#stream;
    return writableLength > 0 ? writableLength : undefined;
  }

  protected override isRequestOver(): boolean {
    return this.#isConversation || this.#stream.endAfterHeaders || this.#stream.readableEnded;
  }

  /** Resets it; and if even that does not reach the client, ends the connection. */
  override end(): void {
    if (this.#stream.closed) cutSession(this.#stream.session);
    else resetStream(this.#stream, constants.NGHTTP2_CANCEL);
  }
}

export class Stalls {
  readonly #limits: StallLimits;
  readonly #passMs: number;
  readonly #watched = new Slots<Watched>();
  #timer: NodeJS.Timeout | undefined;

  constructor(limits: StallLimits) {
    this.#limits = limits;
    this.#passMs = Math.min(limits.requestMs, limits.responseMs) / passes;
  }

  /** Watches a connection of HTTP/1 until it is closed. Its requests are limited by Node. */
  watchSocket(socket: Socket): void {
    const slot = this.#watch(new WatchedSocket(socket));
    socket.once("close", () => this.#watched.release(slot));
  }

  /** Watches a stream of HTTP/2 until it is closed. @param isConversation the client may send as long as it reads */
  watchStream(stream: ServerHttp2Stream, isConversation = false): void {
    const slot = this.#watch(new WatchedStream(stream, isConversation));
    stream.on("close", () => this.#watched.release(slot));
  }

  #watch(watched: Watched): number {
    this.#timer ??= setInterval(() => this.#pass(), this.#passMs).unref();
    return this.#watched.take(watched);
  }

  #pass(): void {
    let count = 0;
    for (const watched of this.#watched) {
      count += 1;
      if (watched.isStalled(this.#passMs, this.#limits)) watched.end();
    }
    if (count > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}
