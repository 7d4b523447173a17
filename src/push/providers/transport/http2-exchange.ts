/**
 * One request over HTTP/2 and what came of it. Owns the gathering of an answer and its limits; which
 * connection it goes over, and for how long, is the pool's.
 */
import { type ClientHttp2Stream, constants, type IncomingHttpHeaders } from "node:http2";

/** Bytes of an answer's body that are read; the rest is refused. The longest error of a provider has about 2 KiB. */
export const maxBodyBytes = 64 * 1024;

/**
 * Names and values by turns, pseudo-headers first, `:method`, `:scheme`, `:authority` and `:path` included.
 * Not copied and not changed, so requests may share one.
 */
export type RawHeaders = readonly string[];

/** The peer answered: at least with a status. */
export interface ProviderResponse {
  readonly answered: true;
  readonly status: number;
  header(name: string): string | undefined;
  /** The body, cut at 64 KiB, or where the connection broke. */
  text(): string;
}

/** Nothing came back. */
export interface NoResponse {
  readonly answered: false;
  /**
   * `unreachable`: there is no connection, so others will fare the same. `lost`: whether the peer processed
   * it is not known. `timeout`: the same, it took too long.
   */
  readonly cause: "unreachable" | "lost" | "timeout";
  /** A few words, such as `ECONNREFUSED`; holds nothing of the request. */
  readonly reason: string;
}

export type ExchangeResult = ProviderResponse | NoResponse;

/** A request in flight, and then its answer: one object, as there are ten thousand a second. */
export class Exchange implements ProviderResponse {
  readonly answered = true;
  readonly headers: RawHeaders;
  readonly body: string | Uint8Array;
  /** As in `performance.now()`. */
  readonly askedAt: number;
  /** How many streams it was sent on. */
  tries = 0;
  /** The stream that it is sent on; others, abandoned, have no say. */
  stream: ClientHttp2Stream | undefined;
  readonly reply: Promise<ExchangeResult>;
  readonly #resolve: (reply: ExchangeResult) => void;
  #answer: IncomingHttpHeaders | undefined;
  #chunks: Buffer[] | undefined;
  #size = 0;

  constructor(headers: RawHeaders, body: string | Uint8Array) {
    this.headers = headers;
    this.body = body;
    this.askedAt = performance.now();
    const { promise, resolve } = Promise.withResolvers<ExchangeResult>();
    this.reply = promise;
    this.#resolve = resolve;
  }

  /** 0 until the peer has answered. */
  get status(): number {
    return Number(this.#answer?.[":status"] ?? 0);
  }

  header(name: string): string | undefined {
    const value = this.#answer?.[name];
    return typeof value === "string" ? value : undefined;
  }

  text(): string {
    return this.#chunks === undefined ? "" : Buffer.concat(this.#chunks).toString();
  }

  takeHeaders(headers: IncomingHttpHeaders): void {
    this.#answer = headers;
  }

  takeChunk(chunk: Buffer): void {
    const room = maxBodyBytes - this.#size;
    if (chunk.length > room) this.stream?.close(constants.NGHTTP2_CANCEL);
    if (room === 0) return;
    const taken = chunk.length > room ? chunk.subarray(0, room) : chunk;
    this.#size += taken.length;
    this.#chunks ??= [];
    this.#chunks.push(taken);
  }

  /** Ends it with what was answered. A second end has no effect. */
  succeed(): void {
    this.#resolve(this);
  }

  fail(cause: NoResponse["cause"], reason: string): void {
    this.#resolve({ answered: false, cause, reason });
  }
}
