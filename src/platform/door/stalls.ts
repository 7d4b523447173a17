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
class Watched {
  readonly #on: Socket | ServerHttp2Stream;
  readonly #hasToEnd: boolean;
  #written: number | undefined;
  #age = 0;
  #unread = 0;

  constructor(on: Socket | ServerHttp2Stream) {
    this.#on = on;
    this.#hasToEnd = "session" in on && !on.endAfterHeaders;
  }

  /** Whether the client has been given its time. @param ms since the last pass, or less */
  isStalled(ms: number, { requestMs, responseMs }: StallLimits): boolean {
    const on = this.#on;
    // Changes with each chunk that is sent; undefined if nothing waits for the client.
    const sent = "bytesWritten" in on ? on.bytesWritten - on.writableLength : on.writableLength;
    const written = on.writableLength > 0 ? sent : undefined;
    this.#age += ms;
    this.#unread = written !== undefined && written === this.#written ? this.#unread + ms : 0;
    this.#written = written;
    return this.#unread >= responseMs || (this.#hasToEnd && this.#age >= requestMs && !on.readableEnded);
  }

  /** Resets a stream; and if even that does not reach the client, ends the connection. */
  end(): void {
    const on = this.#on;
    if (!("session" in on)) on.destroy();
    else if (on.closed) cutSession(on.session);
    else resetStream(on, constants.NGHTTP2_CANCEL);
  }
}

export class Stalls {
  readonly limits: StallLimits;
  readonly #passMs: number;
  readonly #watched = new Slots<Watched>();
  #timer: NodeJS.Timeout | undefined;

  constructor(limits: StallLimits) {
    this.limits = limits;
    this.#passMs = Math.min(limits.requestMs, limits.responseMs) / passes;
  }

  /** Watches it until it is closed: a connection of HTTP/1, whose requests Node limits, or a stream of HTTP/2. */
  watch(on: Socket | ServerHttp2Stream): void {
    this.#timer ??= setInterval(() => this.#pass(), this.#passMs).unref();
    const slot = this.#watched.take(new Watched(on));
    on.on("close", () => this.#watched.release(slot));
  }

  #pass(): void {
    let count = 0;
    for (const watched of this.#watched) {
      count += 1;
      if (watched.isStalled(this.#passMs, this.limits)) watched.end();
    }
    if (count > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}
