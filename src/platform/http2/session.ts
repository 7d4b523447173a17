/**
 * One HTTP/2 connection as the pool sees it: how many streams it takes and, by PINGs, the detection of a lost peer.
 */
import type { LookupFunction } from "node:net";
import type { Connect, Connection, ConnectionListener, StreamEnd } from "./connection.ts";
import type { Exchange, ExchangeOwner } from "./exchange.ts";
import { errorCode } from "./protocol.ts";

/** Milliseconds for connecting, TLS and the peer's settings. */
const connectMs = 5_000;
/** Milliseconds without a finished request after which a retired connection is destroyed. */
const lingerMs = 30_000;

/** The callbacks of a session. */
export interface SessionOwner {
  /** The session may have room for more requests. */
  onRoom(session: Session): void;
  onEnded(session: Session, exchange: Exchange, end: StreamEnd): void;
  /** The peer refused a stream within the limit: it wants fewer streams at once. */
  onRefused(session: Session, limit: number): void;
  /** The session accepts no more requests; those in flight may still finish. */
  onRetired(session: Session): void;
  /** The session has ended. `wasReady`: whether it was ever connected. */
  onClosed(session: Session, wasReady: boolean): void;
}

export interface SessionOptions {
  readonly connect: Connect;
  /** `http:` is HTTP/2 without TLS, `https:` with. */
  readonly origin: string;
  /** Certificates to trust, PEM; those of Node unless given. */
  readonly ca: string | undefined;
  /** How the host is looked up. */
  readonly lookup: LookupFunction;
  /** Streams at once, even if the peer allows more. */
  readonly maxStreams: number;
  /** Milliseconds without a request after which the session is closed. */
  readonly idleMs: number;
  /** Milliseconds of silence with requests in flight until a PING is sent. */
  readonly silenceMs: number;
  /** Likewise without requests in flight; it may be Infinity. */
  readonly idleSilenceMs: number;
  /** Milliseconds that the response to a PING may take; as long as the silence unless given. */
  readonly pongMs?: number;
}

export class Session implements ConnectionListener, ExchangeOwner {
  readonly #connection: Connection;
  readonly #owner: SessionOwner;
  readonly #options: SessionOptions;
  #state: "connecting" | "open" | "retired" = "connecting";
  /** Streams that the peer allows at once. */
  #allowed = 0;
  /** Streams that are opened at once, even if the peer allows more. */
  #maxStreams: number;
  #inFlight = 0;
  #startedAt = performance.now();
  #usedAt = this.#startedAt;
  #heardAt = this.#startedAt;
  /** When the last PING was sent; undefined: no PING is waiting for its response. */
  #pingedAt: number | undefined;

  constructor(options: SessionOptions, owner: SessionOwner) {
    this.#options = options;
    this.#maxStreams = options.maxStreams;
    this.#owner = owner;
    this.#connection = options.connect(options, this);
  }

  /** Why the session ended, in a few words. */
  get reason(): string {
    return this.#connection.reason;
  }

  get isConnecting(): boolean {
    return this.#state === "connecting";
  }

  get hasRoom(): boolean {
    return this.#state === "open" && this.#inFlight < this.#limit && this.#connection.isOpen;
  }

  get #limit(): number {
    return Math.min(this.#allowed, this.#maxStreams);
  }

  onSettings(maxStreams: number): void {
    this.#heard();
    this.#allowed = maxStreams;
    if (this.#state === "connecting") this.#state = "open";
    this.#owner.onRoom(this);
  }

  onRetired(): void {
    if (this.#state !== "open") return;
    this.#state = "retired";
    this.#owner.onRetired(this);
  }

  onClosed(): void {
    const wasReady = this.#state !== "connecting";
    this.#state = "retired";
    this.#owner.onClosed(this, wasReady);
  }

  #heard(): void {
    this.#heardAt = performance.now();
    this.#pingedAt = undefined;
  }

  /** Sends a request. Call it only if `hasRoom`. @throws if it is not valid in HTTP */
  send(exchange: Exchange): void {
    exchange.begin(this.#connection.request(exchange.head, exchange.requestBody, exchange), this);
    this.#inFlight += 1;
  }

  onResponse(): void {
    this.#heard();
  }

  onEnd(exchange: Exchange, end: StreamEnd): void {
    const { resetCode } = end;
    this.#inFlight -= 1;
    this.#usedAt = performance.now();
    const isRefused = resetCode === errorCode.refusedStream || resetCode === errorCode.enhanceYourCalm;
    if (isRefused && this.#state === "open" && this.#connection.isOpen) {
      this.#owner.onRefused(this, this.#limit);
    }
    this.#owner.onEnded(this, exchange, end);
    this.#owner.onRoom(this);
  }

  /** Limits the streams at once from now on. */
  restrict(maxStreams: number): void {
    this.#maxStreams = Math.min(this.#maxStreams, maxStreams);
  }

  /** Closes or checks an idle, silent or retired connection. Called at an interval. */
  sweep(now: number): void {
    const { idleMs, silenceMs, idleSilenceMs, pongMs = silenceMs } = this.#options;
    if (this.#state === "connecting") {
      if (now - this.#startedAt >= connectMs) this.#cut("connecting took too long");
    } else if (this.#state === "retired") {
      if (now - this.#usedAt >= lingerMs) this.#cut("retired");
    } else if (!this.#connection.isOpen || (this.#inFlight === 0 && now - this.#usedAt >= idleMs)) {
      this.retire();
    } else if (this.#pingedAt !== undefined) {
      if (now - this.#pingedAt >= pongMs) this.#cut("the peer is silent");
    } else if (now - this.#heardAt >= (this.#inFlight > 0 ? silenceMs : idleSilenceMs)) {
      this.#ping(now);
    }
  }

  #ping(now: number): void {
    this.#pingedAt = now;
    this.#connection.ping(() => this.#heard());
  }

  #cut(reason: string): void {
    this.#connection.destroy(reason);
  }

  /** Accepts no more requests, and closes when those in flight have ended. */
  retire(): void {
    if (this.#state === "connecting") this.#cut("closed");
    if (this.#state !== "open") return;
    this.#state = "retired";
    this.#connection.close();
    this.#owner.onRetired(this);
  }

  /** Closes the connection at once, even with requests in flight. */
  destroy(): void {
    this.#cut("closed");
  }
}
