/**
 * Connections to one origin over HTTP/2. Owns which of them a request goes over, the queue of those for which
 * there is no room yet, their deadlines, and asking again what a peer surely did not look at. One timer looks
 * after everything: a timer for each request would cost more than the rest.
 */
import { constants } from "node:http2";
import { Exchange, type ExchangeResult, type NoResponse, type RawHeaders } from "./http2-exchange.ts";
import { Session, type SessionOptions, type SessionOwner } from "./http2-session.ts";

/** Milliseconds that a request waits for room before another connection is opened: connections are dear to peers. */
const growAfterMs = 50;
/** Milliseconds after a failed connection during which requests fail at once, so that the peer is not hammered. */
const awayMs = 250;
/** How often a request is asked that the peer did not look at. */
const maxTries = 4;
/** Milliseconds that a peer's wish for fewer streams is respected by new connections. */
const restrictedMs = 600_000;
/** Milliseconds that closing connections have to say goodbye. */
const goawayMs = 1_000;

export interface PoolOptions {
  /** As in `https://api.push.apple.com`. `http:` is HTTP/2 without TLS. */
  readonly origin: string;
  readonly maxSessions: number;
  /** Streams at once on a connection, even if the peer allows more. */
  readonly maxStreams: number;
  /** Milliseconds from asking to the end of the answer, waiting included. 10 s unless given. */
  readonly timeoutMs?: number;
  /** Milliseconds without a request, after which a connection is closed. 10 minutes unless given. */
  readonly idleMs?: number;
  /**
   * Milliseconds of silence with requests in flight, after which the peer is asked whether it is there; it has
   * as long to answer. 4 s unless given.
   */
  readonly silenceMs?: number;
  /** A status with which the peer asks for another connection. */
  readonly reconnectOn?: number;
  /** Certificates to trust, PEM; those of Node unless given. */
  readonly ca?: string;
}

export class Http2Pool implements SessionOwner {
  readonly #options: PoolOptions;
  readonly #timeoutMs: number;
  /** Those that take requests, or will when they are connected. */
  readonly #sessions: Session[] = [];
  /** All that have not ended, the retired ones included. */
  readonly #alive = new Set<Session>();
  /** Requests without an answer, the oldest first. */
  readonly #open = new Set<Exchange>();
  /** Those of them that are on no connection, the oldest first. */
  readonly #waiting = new Set<Exchange>();
  #timer: NodeJS.Timeout | undefined;
  /** Connecting failed just now. */
  #away: { readonly until: number; readonly reason: string } | undefined;
  /** The peer wanted fewer streams. */
  #restricted: { readonly until: number; readonly maxStreams: number } | undefined;
  #isClosing = false;
  #onIdle: (() => void) | undefined;

  constructor(options: PoolOptions) {
    this.#options = options;
    this.#timeoutMs = options.timeoutMs ?? 10_000;
  }

  /** Asks the peer. Never rejects. */
  request(headers: RawHeaders, body: string | Uint8Array): Promise<ExchangeResult> {
    const exchange = new Exchange(headers, body);
    if (this.#isClosing) exchange.fail("unreachable", "closed");
    else if (this.#away && exchange.askedAt < this.#away.until) {
      exchange.fail("unreachable", this.#away.reason);
    } else {
      this.#open.add(exchange);
      this.#timer ??= setInterval(() => this.#sweep(), Math.min(250, this.#timeoutMs / 4)).unref();
      this.#waiting.add(exchange);
      this.#pump();
    }
    return exchange.reply;
  }

  /** Sends what waits, as far as there is room. */
  #pump(): void {
    for (const exchange of this.#waiting) {
      const session = this.#sessions.find(({ hasRoom }) => hasRoom);
      if (session === undefined) {
        this.#grow(exchange);
        return;
      }
      this.#waiting.delete(exchange);
      try {
        session.send(exchange);
      } catch {
        this.#give(exchange, "lost", "the request cannot be written");
      }
    }
  }

  /** Opens a connection if there is none, or if those that there are leave the oldest request waiting. */
  #grow(oldest: Exchange): void {
    const now = performance.now();
    const count = this.#sessions.length;
    if (count > 0) {
      if (count >= this.#options.maxSessions || now - oldest.askedAt < growAfterMs) return;
      if (this.#sessions.some(({ isConnecting }) => isConnecting)) return;
    }
    if (this.#restricted && now >= this.#restricted.until) this.#restricted = undefined;
    const { origin, ca, maxStreams, idleMs = 600_000, silenceMs = 4_000 } = this.#options;
    const options: SessionOptions = {
      origin,
      ca,
      idleMs,
      silenceMs,
      maxStreams: Math.min(maxStreams, this.#restricted?.maxStreams ?? maxStreams),
    };
    const session = new Session(options, this);
    this.#sessions.push(session);
    this.#alive.add(session);
  }

  onRoom(): void {
    if (this.#waiting.size > 0) this.#pump();
  }

  onEnded(session: Session, exchange: Exchange, processed: boolean): void {
    if (exchange.status !== 0) {
      this.#open.delete(exchange);
      exchange.succeed();
      if (exchange.status === this.#options.reconnectOn) session.retire();
    } else if (processed || exchange.tries >= maxTries) {
      this.#open.delete(exchange);
      exchange.fail("lost", session.reason);
    } else {
      exchange.stream = undefined;
      this.#waiting.add(exchange);
    }
    if (this.#open.size === 0) this.#onIdle?.();
  }

  onRefused(session: Session, limit: number): void {
    const now = performance.now();
    // Those of a burst that are refused together count once.
    const isOfBurst = this.#restricted && this.#restricted.until - now > restrictedMs - 1_000;
    const maxStreams = isOfBurst ? this.#restricted?.maxStreams : undefined;
    this.#restricted = {
      until: now + restrictedMs,
      maxStreams: maxStreams ?? Math.max(1, Math.floor(limit / 2)),
    };
    session.restrict(this.#restricted.maxStreams);
  }

  onRetired(session: Session): void {
    const index = this.#sessions.indexOf(session);
    if (index >= 0) this.#sessions.splice(index, 1);
    this.onRoom();
  }

  onClosed(session: Session, wasReady: boolean): void {
    this.#alive.delete(session);
    const index = this.#sessions.indexOf(session);
    if (index >= 0) this.#sessions.splice(index, 1);
    if (!wasReady && this.#sessions.length === 0) {
      this.#away = { until: performance.now() + awayMs, reason: session.reason };
      for (const exchange of this.#waiting) this.#give(exchange, "unreachable", session.reason);
    }
    this.onRoom();
    if (this.#open.size === 0) this.#onIdle?.();
  }

  /** Gives up on a request. */
  #give(exchange: Exchange, cause: NoResponse["cause"], reason: string): void {
    this.#open.delete(exchange);
    this.#waiting.delete(exchange);
    const { stream } = exchange;
    exchange.stream = undefined;
    exchange.fail(cause, reason);
    stream?.close(constants.NGHTTP2_CANCEL);
    if (this.#open.size === 0) this.#onIdle?.();
  }

  #sweep(): void {
    const now = performance.now();
    for (const exchange of this.#open) {
      if (now - exchange.askedAt < this.#timeoutMs) break;
      const isWaiting = this.#waiting.has(exchange);
      this.#give(exchange, "timeout", isWaiting ? "no connection had room" : "no answer in time");
    }
    for (const session of this.#alive) session.sweep(now);
    this.onRoom();
    if (this.#open.size > 0 || this.#alive.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** Lets requests in flight finish, each within its time, then closes the connections. */
  async close(): Promise<void> {
    this.#isClosing = true;
    await this.#until(() => this.#open.size === 0);
    for (const session of this.#alive) session.retire();
    const end = setTimeout(() => {
      for (const session of this.#alive) session.destroy();
    }, goawayMs);
    await this.#until(() => this.#alive.size === 0);
    clearTimeout(end);
    clearInterval(this.#timer);
  }

  async #until(isSo: () => boolean): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const look = (): void => {
      if (isSo()) resolve();
    };
    this.#onIdle = look;
    look();
    await promise;
  }
}
