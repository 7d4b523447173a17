/**
 * One request over HTTP/2 and its result. Reads the response within its limits; the pool chooses the connection and
 * enforces the timeout.
 */
import { type ClientHttp2Stream, constants, type IncomingHttpHeaders } from "node:http2";

/** Most bytes of a response body that are read; then the stream is closed. Providers' longest errors have about 2 KiB. */
export const maxBodyBytes = 64 * 1024;

/**
 * Alternating names and values. Pseudo-headers come first, including `:method`, `:scheme`, `:authority` and `:path`.
 * It is neither copied nor changed, so requests may share one.
 */
export type RawHeaders = readonly string[];

/** The peer responded, at least with a status. */
export interface ProviderResponse {
  readonly responded: true;
  readonly status: number;
  header(name: string): string | undefined;
  /** The body, cut at 64 KiB, or where the connection broke. */
  text(): string;
}

/** No response came. */
export interface NoResponse {
  readonly responded: false;
  /**
   * `unreachable`: there is no connection, so other requests would fail too. `lost`: the connection broke, and the peer
   * may or may not have processed the request. `timeout`: the same, after the timeout.
   */
  readonly cause: "unreachable" | "lost" | "timeout";
  /** A few words, such as `ECONNREFUSED`; contains nothing of the request. */
  readonly reason: string;
}

export type ExchangeResult = ProviderResponse | NoResponse;

/** A request in flight, and then its response: one object for both, as there are ten thousand a second. */
export class Exchange implements ProviderResponse {
  readonly responded = true;
  readonly headers: RawHeaders;
  readonly body: string | Uint8Array;
  /** As in `performance.now()`. */
  readonly requestedAt: number;
  /** How many streams it was sent on. */
  tries = 0;
  /** The stream that the request is sent on; events of abandoned streams are ignored. */
  stream: ClientHttp2Stream | undefined;
  readonly result: Promise<ExchangeResult>;
  readonly #resolve: (result: ExchangeResult) => void;
  #responseHeaders: IncomingHttpHeaders | undefined;
  #chunks: Buffer[] | undefined;
  #size = 0;

  constructor(headers: RawHeaders, body: string | Uint8Array) {
    this.headers = headers;
    this.body = body;
    this.requestedAt = performance.now();
    const { promise, resolve } = Promise.withResolvers<ExchangeResult>();
    this.result = promise;
    this.#resolve = resolve;
  }

  /** 0 until the peer has responded. */
  get status(): number {
    return Number(this.#responseHeaders?.[":status"] ?? 0);
  }

  header(name: string): string | undefined {
    const value = this.#responseHeaders?.[name];
    return typeof value === "string" ? value : undefined;
  }

  text(): string {
    return this.#chunks === undefined ? "" : Buffer.concat(this.#chunks).toString();
  }

  takeHeaders(headers: IncomingHttpHeaders): void {
    this.#responseHeaders = headers;
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

  /** Ends the exchange with the response. A second end has no effect. */
  succeed(): void {
    this.#resolve(this);
  }

  fail(cause: NoResponse["cause"], reason: string): void {
    this.#resolve({ responded: false, cause, reason });
  }
}
