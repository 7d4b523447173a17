/**
 * One request to a fake and what can be done with it, whatever protocol it came by. Owns reading the body and
 * the ways of not answering properly: resetting the stream, cutting the connection, sending everybody away.
 */
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import { constants, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";

/** Of a longer body only the beginning is kept: no provider takes as much, so all that matters is its length. */
const maxKeptBody = 65_536;

/** An answer of a provider. */
export interface FakeResponse {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** A request whose body has arrived. Exactly one of its methods is called, or none: then it is never answered. */
export interface Exchange {
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  /** The first 64 KiB. */
  readonly body: Buffer;
  answer(answer: FakeResponse): void;
  /** Ends this request without an answer: RST_STREAM; over HTTP/1.1 the same as `disconnect`. */
  reset(): void;
  /** Cuts the connection, and with it every request on it: TCP RST. */
  disconnect(): void;
  /** HTTP/2 only: GOAWAY. With code 0 open requests may finish, with another the connection ends at once. */
  goAway(code: number, debugData: string): void;
  /** HTTP/2 only: changes how many streams the connection may have open at once. */
  allowStreams(maxConcurrentStreams: number): void;
}

/** What a fake does with its requests. */
export type Handle = (exchange: Exchange) => void;

class Http2Exchange implements Exchange {
  readonly #stream: ServerHttp2Stream;
  readonly headers: IncomingHttpHeaders;
  body: Buffer;

  constructor(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, body: Buffer) {
    this.#stream = stream;
    this.headers = headers;
    this.body = body;
  }

  get method(): string {
    return String(this.headers[":method"]);
  }

  get path(): string {
    return String(this.headers[":path"]);
  }

  answer({ status, headers, body }: FakeResponse): void {
    const stream = this.#stream;
    if (stream.destroyed || stream.closed) return;
    if (body === undefined) {
      stream.respond({ ":status": status, ...headers }, { endStream: true });
      return;
    }
    stream.respond({ ":status": status, ...headers });
    stream.end(body);
  }

  reset(): void {
    if (!this.#stream.destroyed) this.#stream.close(constants.NGHTTP2_INTERNAL_ERROR);
  }

  disconnect(): void {
    const session = this.#session();
    if (session) resetSession(session);
  }

  goAway(code: number, debugData: string): void {
    const session = this.#session();
    if (!session) return;
    // The last stream is left to nghttp2: those that it has seen.
    session.goaway(code, 0, Buffer.from(debugData));
    if (code === constants.NGHTTP2_NO_ERROR) session.close();
    // Once the frame is out.
    else setTimeout(() => session.destroy(), 20).unref();
  }

  allowStreams(maxConcurrentStreams: number): void {
    const session = this.#session();
    // Said once, not with each request.
    if (!session || allowed.get(session) === maxConcurrentStreams) return;
    allowed.set(session, maxConcurrentStreams);
    session.settings({ maxConcurrentStreams });
  }

  #session(): ServerHttp2Session | undefined {
    const { session } = this.#stream;
    return session === undefined || session.destroyed ? undefined : (session as ServerHttp2Session);
  }
}

/** What each session was told of its streams, after the beginning. */
const allowed = new WeakMap<object, number>();

/** The socket of a session may not be touched but through the session; destroyed, it lets go of it. */
const sockets = new WeakMap<object, () => void>();

/** Remembers how to cut the connection under a session. */
export function rememberReset(session: object, reset: () => void): void {
  sockets.set(session, reset);
}

function resetSession(session: object): void {
  sockets.get(session)?.();
}

/** Reads an HTTP/2 request and hands it on. */
export function onHttp2Stream(
  handle: Handle,
): (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void {
  return (stream, headers) => {
    let first: Buffer | undefined;
    let rest: Buffer[] | undefined;
    let length = 0;
    stream.on("error", ignore);
    stream.on("data", (chunk: Buffer) => {
      length += chunk.length;
      if (first === undefined) first = chunk;
      else if (length <= maxKeptBody) rest = [...(rest ?? []), chunk];
    });
    stream.on("end", () => {
      const body = joined(first, rest);
      handle(new Http2Exchange(stream, headers, body));
    });
  };
}

/** Reads an HTTP/1.1 request and hands it on. */
export function onHttp1Request(handle: Handle): (request: IncomingMessage, response: ServerResponse) => void {
  return (request, response) => {
    const chunks: Buffer[] = [];
    let length = 0;
    request.on("error", ignore);
    response.on("error", ignore);
    request.on("data", (chunk: Buffer) => {
      length += chunk.length;
      if (length <= maxKeptBody || chunks.length === 0) chunks.push(chunk);
    });
    request.on("end", () => handle(http1Exchange(request, response, Buffer.concat(chunks))));
  };
}

function http1Exchange(request: IncomingMessage, response: ServerResponse, body: Buffer): Exchange {
  const disconnect = () => void request.socket.resetAndDestroy();
  return {
    method: request.method ?? "",
    path: request.url ?? "",
    headers: request.headers,
    body,
    answer({ status, headers, body: text }) {
      if (!response.destroyed) response.writeHead(status, headers).end(text);
    },
    reset: disconnect,
    disconnect,
    goAway: disconnect,
    allowStreams: ignore,
  };
}

const empty = Buffer.alloc(0);

function joined(first: Buffer | undefined, rest: readonly Buffer[] | undefined): Buffer {
  if (first === undefined) return empty;
  return rest === undefined ? first : Buffer.concat([first, ...rest]);
}

function ignore(): void {}
