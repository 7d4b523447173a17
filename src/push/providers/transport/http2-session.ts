/**
 * One HTTP/2 connection. Owns its streams, how many the peer allows, and finding out that the peer is gone:
 * a connection whose other end vanished without a word looks open for ever.
 */
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from "node:http2";
import { codeOf } from "../../../platform/base/error-code.ts";
import type { Exchange } from "./http2-exchange.ts";

/** Milliseconds for connecting, TLS and the peer's settings. */
const connectMs = 5_000;
/** Milliseconds of silence of a connection that is only held, after which the peer is asked whether it is there. */
const idleSilenceMs = 60_000;
/** Milliseconds without an answer, after which a connection that takes no more requests is cut. */
const lingerMs = 30_000;

/** Why a session ends whose peer did not choose HTTP/2 when TLS was negotiated. */
export const noHttp2 = "the peer speaks no HTTP/2";

/** What a session tells whoever uses it. */
export interface SessionOwner {
  /** It may have room for more. */
  onRoom(session: Session): void;
  /** @param processed false if the peer surely did not look at the request, so that it may be asked elsewhere */
  onEnded(session: Session, exchange: Exchange, processed: boolean): void;
  /** The peer turned a request away although it was within the limit: it wants fewer at once. */
  onRefused(session: Session, limit: number): void;
  /** It takes no more requests; those in flight may still finish. */
  onRetired(session: Session): void;
  /** It has ended. `wasReady`: whether there ever was a connection. */
  onClosed(session: Session, wasReady: boolean): void;
}

export interface SessionOptions {
  /** `http:` is HTTP/2 without TLS, `https:` with. */
  readonly origin: string;
  /** Certificates to trust, PEM; those of Node unless given. */
  readonly ca: string | undefined;
  /** Streams at once, even if the peer allows more. */
  readonly maxStreams: number;
  /** Milliseconds without a request after which it is closed. */
  readonly idleMs: number;
  /** Milliseconds of silence with requests in flight, after which the peer is asked; and what it has to answer. */
  readonly silenceMs: number;
}

export class Session {
  readonly #http2: ClientHttp2Session;
  readonly #owner: SessionOwner;
  readonly #options: SessionOptions;
  #state: "connecting" | "open" | "retired" = "connecting";
  /** Streams that the peer allows at once. */
  #allowed = 0;
  /** Streams that are opened at once, even if it allows more. */
  #maxStreams: number;
  #inFlight = 0;
  /** The last stream that the peer processes, if it has said that it is going away. */
  #lastStreamId = Number.POSITIVE_INFINITY;
  #startedAt = performance.now();
  #usedAt = this.#startedAt;
  #heardAt = this.#startedAt;
  /** When the peer was asked whether it is there; undefined: it is not being asked. */
  #pingedAt: number | undefined;
  /** Why it ended, in a word. */
  reason = "connection closed";

  constructor(options: SessionOptions, owner: SessionOwner) {
    this.#options = options;
    this.#maxStreams = options.maxStreams;
    this.#owner = owner;
    const { origin, ca } = options;
    this.#http2 = connect(origin, {
      settings: { enablePush: false },
      ...(ca !== undefined && { ca }),
    });
    this.#http2.on("connect", ({ encrypted, alpnProtocol }) => {
      if (encrypted && alpnProtocol !== "h2") this.#cut(noHttp2);
    });
    this.#http2.on("remoteSettings", (settings) => this.#onSettings(settings.maxConcurrentStreams));
    this.#http2.on("goaway", (code, lastStreamId) => {
      this.#lastStreamId = Math.min(this.#lastStreamId, lastStreamId);
      if (code !== constants.NGHTTP2_NO_ERROR) this.reason = `GOAWAY ${code}`;
      this.retire();
    });
    this.#http2.on("error", (error) => {
      this.reason = codeOf(error) ?? error.name;
    });
    this.#http2.on("close", () => {
      const wasReady = this.#state !== "connecting";
      this.#state = "retired";
      this.#owner.onClosed(this, wasReady);
    });
  }

  get isConnecting(): boolean {
    return this.#state === "connecting";
  }

  get hasRoom(): boolean {
    const { closed, destroyed } = this.#http2;
    return this.#state === "open" && this.#inFlight < this.#limit && !closed && !destroyed;
  }

  get #limit(): number {
    return Math.min(this.#allowed, this.#maxStreams);
  }

  #onSettings(maxStreams: number | undefined): void {
    this.#heard();
    this.#allowed = maxStreams ?? Number.POSITIVE_INFINITY;
    if (this.#state === "connecting") this.#state = "open";
    this.#owner.onRoom(this);
  }

  #heard(): void {
    this.#heardAt = performance.now();
    this.#pingedAt = undefined;
  }

  /** Sends a request. Only where there is room. */
  send(exchange: Exchange): void {
    const stream = this.#http2.request(exchange.headers);
    this.#inFlight += 1;
    exchange.stream = stream;
    exchange.tries += 1;
    stream.on("response", (headers) => {
      this.#heard();
      exchange.takeHeaders(headers);
    });
    stream.on("data", (chunk: Buffer) => exchange.takeChunk(chunk));
    // What there is to know of it, "close" tells.
    stream.on("error", () => {});
    stream.on("close", () => this.#onStreamClosed(stream, exchange));
    stream.end(exchange.body);
  }

  #onStreamClosed(stream: ClientHttp2Stream, exchange: Exchange): void {
    this.#inFlight -= 1;
    this.#usedAt = performance.now();
    const { rstCode } = stream;
    const isOver = this.#state === "retired" || this.#http2.closed || this.#http2.destroyed;
    const isRefused = rstCode === constants.NGHTTP2_REFUSED_STREAM;
    if (!isOver && (isRefused || rstCode === constants.NGHTTP2_ENHANCE_YOUR_CALM)) {
      this.#owner.onRefused(this, this.#limit);
    }
    if (exchange.stream === stream) {
      const isUnseen = isRefused || stream.id === undefined || stream.id > this.#lastStreamId;
      this.#owner.onEnded(this, exchange, exchange.status !== 0 || !isUnseen);
    }
    this.#owner.onRoom(this);
  }

  /** From now on at most so many streams at once. */
  restrict(maxStreams: number): void {
    this.#maxStreams = Math.min(this.#maxStreams, maxStreams);
  }

  /** Looks whether it is still of use. Called every now and then. */
  sweep(now: number): void {
    if (this.#state === "connecting") {
      if (now - this.#startedAt >= connectMs) this.#cut("connecting took too long");
    } else if (this.#state === "retired") {
      if (now - this.#usedAt >= lingerMs) this.#cut("retired");
    } else if (this.#inFlight === 0 && now - this.#usedAt >= this.#options.idleMs) {
      this.retire();
    } else if (this.#pingedAt !== undefined) {
      if (now - this.#pingedAt >= this.#options.silenceMs) this.#cut("the peer is silent");
    } else if (now - this.#heardAt >= (this.#inFlight > 0 ? this.#options.silenceMs : idleSilenceMs)) {
      this.#ping(now);
    }
  }

  #ping(now: number): void {
    if (this.#http2.destroyed) return;
    this.#pingedAt = now;
    this.#http2.ping((error) => {
      if (error === null) this.#heard();
    });
  }

  #cut(reason: string): void {
    this.reason = reason;
    this.#http2.destroy();
  }

  /** Takes no more requests, and closes when those in flight have ended. */
  retire(): void {
    if (this.#state === "connecting") this.#cut("closed");
    if (this.#state !== "open") return;
    this.#state = "retired";
    if (!this.#http2.closed && !this.#http2.destroyed) this.#http2.close();
    this.#owner.onRetired(this);
  }

  /** Ends it, whatever is in flight. */
  destroy(): void {
    this.#cut("closed");
  }
}
