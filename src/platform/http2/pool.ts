/**
 * Connections to one origin over HTTP/2: chooses that of each request, queues requests while none has room, enforces
 * timeouts by one timer, and repeats requests that the peer certainly did not process.
 */
import { type Connect, type RequestHead, type StreamEnd, tooManyPings } from "./connection.ts";
import { Exchange, type ExchangeResult, LinkedList, type NoResponse } from "./exchange.ts";
import { FrameConnection } from "./frame-connection.ts";
import { configuredLookup } from "./lookup.ts";
import { Session, type SessionOptions, type SessionOwner } from "./session.ts";

/** Milliseconds that a request waits for room before another connection is opened: connections cost the peer much. */
const growAfterMs = 50;
/** Milliseconds after a failed connection during which requests fail at once, so that the peer is not overloaded. */
const unreachableMs = 250;
/** Milliseconds for which new connections respect that the peer wants fewer streams. */
const restrictedMs = 600_000;
/** Milliseconds that connections have to close after GOAWAY; then they are destroyed. */
const closeTimeoutMs = 1_000;

interface Options extends SessionOptions {
  readonly maxSessions: number;
  /** Milliseconds from the request to the end of the response, including the wait for a stream. */
  readonly timeoutMs: number;
  /** Most attempts at a request that the peer did not process. */
  readonly maxTries: number;
  /** The fewest streams at once that the refusals of a peer bring a connection to. */
  readonly leastStreams: number;
  /** The statuses after which new requests get another connection. */
  readonly reconnectOn: readonly number[];
}

/** Those that hold unless others are given. The host is looked up as one that the settings name. */
const defaults = {
  connect: (...of: Parameters<Connect>) => new FrameConnection(...of),
  timeoutMs: 10_000,
  maxTries: 4,
  leastStreams: 1,
  idleMs: 600_000,
  silenceMs: 4_000,
  idleSilenceMs: 60_000,
  reconnectOn: [],
  ca: undefined,
  lookup: configuredLookup,
};

export type PoolOptions = Omit<Options, keyof typeof defaults> & Partial<Options>;

export class Http2Pool implements SessionOwner {
  readonly #options: Options;
  /** Sessions that accept requests, or will once they are connected. */
  readonly #sessions: Session[] = [];
  /** All sessions that have not ended, including the retired ones. */
  readonly #alive = new Set<Session>();
  /** Requests without a result: those on a connection, and those that wait for one. */
  readonly #inFlight = new LinkedList<Exchange>();
  readonly #waiting = new LinkedList<Exchange>();
  #timer: NodeJS.Timeout | undefined;
  /** Set when connecting has failed: until then, requests fail at once. */
  #unreachable: { readonly until: number; readonly reason: string } | undefined;
  /** Set when the peer has refused streams: until then, new sessions use fewer. */
  #restricted: { readonly until: number; readonly maxStreams: number } | undefined;
  /** How many times more rarely than by the options PINGs are sent. */
  #pingFactor = 1;
  #isClosing = false;
  #onIdle: (() => void) | undefined;

  constructor(options: PoolOptions) {
    this.#options = { ...defaults, ...options };
  }

  /** Sends a request. Never rejects. */
  request(head: RequestHead, body: string | Uint8Array): Promise<ExchangeResult> {
    const exchange = new Exchange(head, body);
    if (this.#isClosing) exchange.fail("unreachable", "closed");
    else if (this.#unreachable && exchange.requestedAt < this.#unreachable.until) {
      exchange.fail("unreachable", this.#unreachable.reason);
    } else {
      this.#timer ??= setInterval(() => this.#sweep(), Math.min(250, this.#options.timeoutMs / 4)).unref();
      this.#waiting.add(exchange);
      this.#pump();
    }
    return exchange.result;
  }

  /** Sends the waiting requests, as far as there is room. */
  #pump(): void {
    for (let exchange = this.#waiting.first; exchange; exchange = this.#waiting.first) {
      // A process that was frozen meanwhile may have been taken for dead, and others send the message now.
      if (this.#isOver(exchange, performance.now())) {
        this.#abandon(exchange, "timeout", "no connection had room");
        continue;
      }
      const session = this.#sessions.find(({ hasRoom }) => hasRoom);
      if (session === undefined) {
        this.#grow(exchange);
        return;
      }
      this.#waiting.remove(exchange);
      this.#inFlight.add(exchange);
      try {
        session.send(exchange);
      } catch {
        this.#abandon(exchange, "lost", "the request cannot be written");
      }
    }
  }

  /** Opens a connection if there is none, or if the oldest request has waited too long for the existing ones. */
  #grow(oldest: Exchange): void {
    const now = performance.now();
    const count = this.#sessions.length;
    if (count > 0) {
      if (count >= this.#options.maxSessions || now - oldest.requestedAt < growAfterMs) return;
      if (this.#sessions.some(({ isConnecting }) => isConnecting)) return;
    }
    if (this.#restricted && now >= this.#restricted.until) this.#restricted = undefined;
    const { maxStreams, silenceMs, idleSilenceMs } = this.#options;
    const options = {
      ...this.#options,
      silenceMs: silenceMs * this.#pingFactor,
      idleSilenceMs: idleSilenceMs * this.#pingFactor,
      maxStreams: Math.min(maxStreams, this.#restricted?.maxStreams ?? maxStreams),
    };
    const session = new Session(options, this);
    this.#sessions.push(session);
    this.#alive.add(session);
  }

  onRoom(): void {
    if (this.#waiting.size > 0) this.#pump();
  }

  onEnded(session: Session, exchange: Exchange, { isUnprocessed, resetCode }: StreamEnd): void {
    // The stream was that of an abandoned request.
    if (exchange.list === undefined) return;
    exchange.list.remove(exchange);
    if (exchange.status !== 0) {
      exchange.succeed();
      if (this.#options.reconnectOn.includes(exchange.status)) session.retire();
    } else if (!isUnprocessed || exchange.tries >= this.#options.maxTries) {
      if (resetCode === undefined) exchange.fail("lost", session.reason);
      else exchange.fail("aborted", `RST_STREAM ${resetCode}`);
    } else {
      this.#waiting.add(exchange);
    }
    if (this.#isIdle) this.#onIdle?.();
  }

  onRefused(session: Session, limit: number): void {
    const now = performance.now();
    // Streams that are refused within one second count once.
    const isOfBurst = this.#restricted && this.#restricted.until - now > restrictedMs - 1_000;
    const maxStreams = isOfBurst ? this.#restricted?.maxStreams : undefined;
    this.#restricted = {
      until: now + restrictedMs,
      maxStreams: maxStreams ?? Math.max(this.#options.leastStreams, Math.floor(limit / 2)),
    };
    session.restrict(this.#restricted.maxStreams);
  }

  onRetired(session: Session): void {
    if (session.reason === tooManyPings) this.#pingFactor *= 2;
    const index = this.#sessions.indexOf(session);
    if (index >= 0) this.#sessions.splice(index, 1);
    this.onRoom();
  }

  onClosed(session: Session, wasReady: boolean): void {
    this.#alive.delete(session);
    const index = this.#sessions.indexOf(session);
    if (index >= 0) this.#sessions.splice(index, 1);
    if (!wasReady && this.#sessions.length === 0) {
      this.#unreachable = { until: performance.now() + unreachableMs, reason: session.reason };
      for (let exchange = this.#waiting.first; exchange; exchange = this.#waiting.first) {
        this.#abandon(exchange, "unreachable", session.reason);
      }
    }
    this.onRoom();
    if (this.#isIdle) this.#onIdle?.();
  }

  #isOver({ requestedAt }: Exchange, now: number): boolean {
    return now - requestedAt >= this.#options.timeoutMs;
  }

  /** Ends a request without a response. */
  #abandon(exchange: Exchange, cause: NoResponse["cause"], reason: string): void {
    exchange.list?.remove(exchange);
    exchange.fail(cause, reason);
    exchange.cancel();
    if (this.#isIdle) this.#onIdle?.();
  }

  get #isIdle(): boolean {
    return this.#waiting.size === 0 && this.#inFlight.size === 0;
  }

  #sweep(): void {
    const now = performance.now();
    // The requests that wait come first: the room that the others leave would come too late for them.
    const isOver = (exchange: Exchange) => this.#isOver(exchange, now);
    for (const exchange of this.#waiting.filter(isOver)) {
      this.#abandon(exchange, "timeout", "no connection had room");
    }
    for (const exchange of this.#inFlight.filter(isOver)) {
      this.#abandon(exchange, "timeout", "response timeout");
    }
    for (const session of this.#alive) session.sweep(now);
    this.onRoom();
    if (!this.#isIdle || this.#alive.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** Lets requests in flight finish, each within its timeout, then closes the connections. */
  async close(): Promise<void> {
    this.#isClosing = true;
    await this.#waitUntil(() => this.#isIdle);
    for (const session of this.#alive) session.retire();
    const end = setTimeout(() => {
      for (const session of this.#alive) session.destroy();
    }, closeTimeoutMs);
    await this.#waitUntil(() => this.#alive.size === 0);
    clearTimeout(end);
    clearInterval(this.#timer);
  }

  async #waitUntil(isReached: () => boolean): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const check = (): void => {
      if (isReached()) resolve();
    };
    this.#onIdle = check;
    check();
    await promise;
  }
}
