/**
 * One request to a fake and the ways to end it, the same for HTTP/1.1 and HTTP/2. Owns reading the body and the
 * ways to fail: resetting the stream, cutting the connection, GOAWAY.
 */
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import { constants, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";

/** The most bytes of a body that are kept. A longer body exceeds every provider's limit, and is refused for that. */
const maxKeptBody = 65_536;

/** A response of a provider. */
export interface FakeResponse {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** A client's connection to a fake. */
export interface Connection {
  /** When the connection ended, in milliseconds since the epoch; undefined: it has not. */
  readonly endedAt: number | undefined;
  /** Ends it as if the process had died, with every request on it. */
  reset(): void;
}

/** A request whose body has arrived. One of the methods that end it is called, or none: then it gets no response. */
export interface Exchange {
  readonly method: string;
  /** Includes the query. */
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  /** The first 64 KiB. */
  readonly body: Buffer;
  readonly connection: Connection;
  /** Whether the client waits for a response. */
  readonly isOpen: boolean;
  /** @returns false if the client has given the request up, or is gone */
  respond(response: FakeResponse): boolean;
  /** Sends the response's head and half of its body, then cuts the connection. */
  respondHalf(response: FakeResponse): void;
  /** Ends this request without a response: RST_STREAM; over HTTP/1.1 the same as `disconnect`. */
  reset(): void;
  /** Cuts the connection, and with it every request on it: TCP RST. */
  disconnect(): void;
  /** GOAWAY. With code 0 open requests may finish, with another the connection ends at once. HTTP/1.1: `disconnect`. */
  goAway(code: number, debugData: string): void;
  /** HTTP/2 only: changes how many streams the connection may have open at once. */
  allowStreams(maxConcurrentStreams: number): void;
}

/** Handles the requests to a fake. */
export type Handle = (exchange: Exchange) => void;

class Http2Exchange implements Exchange {
  readonly #stream: ServerHttp2Stream;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
  readonly connection: Connection;

  constructor(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, body: Buffer, connection: Connection) {
    this.#stream = stream;
    this.headers = headers;
    this.body = body;
    this.connection = connection;
  }

  get method(): string {
    return String(this.headers[":method"]);
  }

  get path(): string {
    return String(this.headers[":path"]);
  }

  get isOpen(): boolean {
    return !this.#stream.destroyed && !this.#stream.closed;
  }

  respond({ status, headers, body }: FakeResponse): boolean {
    const stream = this.#stream;
    if (!this.isOpen) return false;
    stream.respond({ ":status": status, ...headers }, { endStream: body === undefined });
    if (body !== undefined) stream.end(body);
    return true;
  }

  respondHalf({ status, headers, body = halfBody }: FakeResponse): void {
    const stream = this.#stream;
    if (!this.isOpen) return;
    stream.respond({ ":status": status, ...headers });
    stream.write(firstHalf(body));
    setTimeout(() => this.disconnect(), flushMs).unref();
  }

  reset(): void {
    if (!this.#stream.destroyed) this.#stream.close(constants.NGHTTP2_INTERNAL_ERROR);
  }

  disconnect(): void {
    this.connection.reset();
  }

  goAway(code: number, debugData: string): void {
    const session = this.#session();
    if (!session) return;
    // 0 lets nghttp2 set the last stream id: that of the last stream it has processed.
    session.goaway(code, 0, Buffer.from(debugData));
    if (code === constants.NGHTTP2_NO_ERROR) session.close();
    // Give the frame time to be sent.
    else setTimeout(() => session.destroy(), flushMs).unref();
  }

  allowStreams(maxConcurrentStreams: number): void {
    const session = this.#session();
    // Announce it once, not with each request.
    if (!session || announcedStreams.get(session) === maxConcurrentStreams) return;
    announcedStreams.set(session, maxConcurrentStreams);
    session.settings({ maxConcurrentStreams });
  }

  #session(): ServerHttp2Session | undefined {
    const { session } = this.#stream;
    return session === undefined || session.destroyed ? undefined : (session as ServerHttp2Session);
  }
}

/** The limit of concurrent streams that was announced to a session after its start. */
const announcedStreams = new WeakMap<object, number>();

/** Reads an HTTP/2 request of a connection and passes it to `handle`. */
export function onHttp2Stream(
  handle: Handle,
  connection: Connection,
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
      handle(new Http2Exchange(stream, headers, body, connection));
    });
  };
}

/** Reads an HTTP/1.1 request and passes it to `handle`. @param connectionOf a socket */
export function onHttp1Request(
  handle: Handle,
  connectionOf: (socket: Socket) => Connection,
): (request: IncomingMessage, response: ServerResponse) => void {
  return (request, response) => {
    const chunks: Buffer[] = [];
    let length = 0;
    request.on("error", ignore);
    response.on("error", ignore);
    request.on("data", (chunk: Buffer) => {
      length += chunk.length;
      if (length <= maxKeptBody || chunks.length === 0) chunks.push(chunk);
    });
    const connection = connectionOf(request.socket);
    request.on("end", () => handle(http1Exchange(request, response, Buffer.concat(chunks), connection)));
  };
}

function http1Exchange(
  request: IncomingMessage,
  response: ServerResponse,
  body: Buffer,
  connection: Connection,
): Exchange {
  const disconnect = () => connection.reset();
  return {
    method: request.method ?? "",
    path: request.url ?? "",
    headers: request.headers,
    body,
    connection,
    get isOpen() {
      return !response.destroyed && !response.writableEnded;
    },
    respond({ status, headers, body: text }) {
      if (response.destroyed) return false;
      response.writeHead(status, headers).end(text);
      return true;
    },
    respondHalf({ status, headers, body: text = halfBody }) {
      if (response.destroyed) return;
      response.writeHead(status, { ...headers, "content-length": Buffer.byteLength(text) });
      response.write(firstHalf(text));
      setTimeout(disconnect, flushMs).unref();
    },
    reset: disconnect,
    disconnect,
    goAway: disconnect,
    allowStreams: ignore,
  };
}

const empty = Buffer.alloc(0);

/** Milliseconds in which the written bytes go out. */
const flushMs = 20;

/** The body that is cut, of a response that has none of its own. */
const halfBody = "{}";

function firstHalf(body: string): string {
  return body.slice(0, Math.ceil(body.length / 2));
}

function joined(first: Buffer | undefined, rest: readonly Buffer[] | undefined): Buffer {
  if (first === undefined) return empty;
  return rest === undefined ? first : Buffer.concat([first, ...rest]);
}

function ignore(): void {}
