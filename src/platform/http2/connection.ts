/** A connection to an HTTP/2 server, for many short requests. */

import type { LookupFunction } from "node:net";

/** Alternating names and values, the names in lower case. */
export type Fields = readonly string[];

/** What a request asks for. Pseudo-headers come first: in `path`, and at the beginning of `shared`. */
export interface RequestHead {
  /** `:path`, beginning with a slash. */
  readonly path: string;
  /**
   * Fields that many requests have in common, `:method`, `:scheme` and `:authority` first: the same array, never
   * changed, compressed once. No value may be controlled by who controls another request's (RFC 7541 section 7.1).
   */
  readonly shared: Fields;
  /** Fields of this request alone. They are never put into a compression table, neither here nor further on. */
  readonly own?: Fields;
}

export interface ResponseFields {
  /** The value of the field with this name, which is in lower case; several are combined (RFC 9110 section 5.2). */
  get(name: string): string | undefined;
}

export interface StreamEnd {
  /** The code of the peer's RST_STREAM frame (RFC 9113 section 7); undefined: there was none. */
  readonly resetCode: number | undefined;
  /** The server certainly has not processed the request, so it may be sent again (RFC 9113 section 8.7). */
  readonly isUnprocessed: boolean;
  /** The server has ended the response, which is whole. */
  readonly isComplete: boolean;
}

/** Follows one request. Called in this order; the last call, and the only certain one, is `onEnd`. */
export interface StreamListener {
  /** The final response has begun. @param status from 200 to 999 */
  onResponse(status: number, fields: ResponseFields): void;
  /** A part of the response's body. It may be kept. */
  onData(part: Buffer): void;
  /** Fields after the body. */
  onTrailers?(fields: ResponseFields): void;
  onEnd(end: StreamEnd): void;
}

export interface ClientStream {
  /** Abandons the request (RST_STREAM with CANCEL). The server may process it all the same. `onEnd` is still called. */
  cancel(): void;
}

export interface ConnectionListener {
  /** The peer's settings have come: requests may begin. @param maxStreams at once; it may be Infinity */
  onSettings(maxStreams: number): void;
  /** The connection takes no more requests; those in flight may still finish. */
  onRetired(): void;
  /** The connection is gone; all its streams have ended. */
  onClosed(): void;
}

export interface ConnectionOptions {
  /** `http:` is HTTP/2 without TLS (prior knowledge, RFC 9113 section 3.3), `https:` with. */
  readonly origin: string;
  /** Certificates to trust, PEM; those of Node unless given. */
  readonly ca: string | undefined;
  /** How the host is looked up; as the system does unless given. */
  readonly lookup?: LookupFunction | undefined;
}

export interface Connection {
  /** Whether requests may be sent, as far as the peer's limit on streams allows, which the caller respects. */
  readonly isOpen: boolean;
  /** Why the connection has ended, or why it will: a few words that contain nothing of a request. */
  readonly reason: string;
  /** Sends a request. @throws if it is not valid in HTTP; then nothing is sent */
  request(head: RequestHead, body: string | Uint8Array, listener: StreamListener): ClientStream;
  /** Sends a PING. @param onResponse may never be called */
  ping(onResponse: () => void): void;
  /** Takes no more requests, and closes when those in flight have ended. */
  close(): void;
  /** Closes at once. @param reason of the connection from now on */
  destroy(reason: string): void;
}

/** Opens a connection. It never throws: what goes wrong ends the connection. */
export type Connect = (options: ConnectionOptions, listener: ConnectionListener) => Connection;

/** The reason of a connection whose peer says that it got too many PINGs (GOAWAY, as of gRPC's proposal A8). */
export const tooManyPings = "too many PINGs";

/** The reason of a connection whose peer did not choose HTTP/2 in the TLS handshake (ALPN), or does not speak it. */
export const noHttp2 = "the peer speaks no HTTP/2";
