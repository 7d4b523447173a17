/**
 * One HTTP/2 connection: its streams, the limit that the peer sets on them, and the detection of a lost peer. Without
 * PINGs, a connection whose peer vanished silently would look open for ever.
 */
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from "node:http2";
import { codeOf } from "../../../platform/base/error-code.ts";
import type { Exchange } from "./http2-exchange.ts";

/** Milliseconds for connecting, TLS and the peer's settings. */
const connectMs = 5_000;
/** Milliseconds of silence after which a PING is sent on an idle connection. */
const idleSilenceMs = 60_000;
/** Milliseconds without a finished request after which a retired connection is destroyed. */
const lingerMs = 30_000;

/** The reason of a session whose peer did not choose HTTP/2 in the TLS handshake (ALPN). */
export const noHttp2 = "the peer speaks no HTTP/2";

/** The callbacks of a session. */
export interface SessionOwner {
  /** The session may have room for more requests. */
  onRoom(session: Session): void;
  /** @param processed false if the peer certainly did not process the request, so that it may be sent again elsewhere */
  onEnded(session: Session, exchange: Exchange, processed: boolean): void;
  /** The peer refused a stream within the limit: it wants fewer streams at once. */
  onRefused(session: Session, limit: number): void;
  /** The session accepts no more requests; those in flight may still finish. */
  onRetired(session: Session): void;
  /** The session has ended. `wasReady`: whether it was ever connected. */
  onClosed(session: Session, wasReady: boolean): void;
}

export interface SessionOptions {
  /** `http:` is HTTP/2 without TLS, `https:` with. */
  readonly origin: string;
  /** Certificates to trust, PEM; those of Node unless given. */
  readonly ca: string | undefined;
  /** Streams at once, even if the peer allows more. */
  readonly maxStreams: number;
  /** Milliseconds without a request after which the session is closed. */
  readonly idleMs: number;
  /** Milliseconds of silence with requests in flight after which a PING is sent; its response may take as long again. */
  readonly silenceMs: number;
}

export class Session {
  readonly #http2: ClientHttp2Session;
  readonly #owner: SessionOwner;
  readonly #options: SessionOptions;
  #state: "connecting" | "open" | "retired" = "connecting";
  /** Streams that the peer allows at once. */
  #allowed = 0;
  /** Streams that are opened at once, even if the peer allows more. */
  #maxStreams: number;
  #inFlight = 0;
  /** The last stream that the peer processes, from its GOAWAY frame. */
  #lastStreamId = Number.POSITIVE_INFINITY;
  #startedAt = performance.now();
  #usedAt = this.#startedAt;
  #heardAt = this.#startedAt;
  /** When the last PING was sent; undefined: no PING is waiting for its response. */
  #pingedAt: number | undefined;
  /** Why the session ended, in a few words. */
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

  /** Sends a request. Call it only if `hasRoom`. */
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
    // The "close" event, which follows, handles the error.
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

  /** Limits the streams at once from now on. */
  restrict(maxStreams: number): void {
    this.#maxStreams = Math.min(this.#maxStreams, maxStreams);
  }

  /** Closes or checks an idle, silent or retired connection. Called at an interval. */
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

  /** Accepts no more requests, and closes when those in flight have ended. */
  retire(): void {
    if (this.#state === "connecting") this.#cut("closed");
    if (this.#state !== "open") return;
    this.#state = "retired";
    if (!this.#http2.closed && !this.#http2.destroyed) this.#http2.close();
    this.#owner.onRetired(this);
  }

  /** Closes the connection at once, even with requests in flight. */
  destroy(): void {
    this.#cut("closed");
  }
}
