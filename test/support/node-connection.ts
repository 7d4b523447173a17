/** A connection over `node:http2`, which tests and benchmarks hold ours against. */
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
  sensitiveHeaders,
} from "node:http2";
import type { Socket } from "node:net";
import { codeOf } from "../../src/platform/base/error-code.ts";
import {
  type ClientStream,
  type Connection,
  type ConnectionListener,
  type ConnectionOptions,
  noHttp2,
  type RequestHead,
  type ResponseFields,
  type StreamListener,
} from "../../src/platform/http2/connection.ts";
import { openSocket } from "../../src/platform/http2/socket.ts";

export class NodeConnection implements Connection {
  readonly #opening = new AbortController();
  #http2: ClientHttp2Session | undefined;
  #isReady = false;
  #isRetired = false;
  reason = "connection closed";
  /** The last stream that the peer processes, from its GOAWAY frame. */
  #lastStreamId = Number.POSITIVE_INFINITY;

  constructor(options: ConnectionOptions, listener: ConnectionListener) {
    openSocket(options, this.#opening.signal).then(
      (socket) => this.#begin(options.origin, socket, listener),
      (error) => {
        this.#onError(error);
        listener.onClosed();
      },
    );
  }

  #begin(origin: string, socket: Socket, listener: ConnectionListener): void {
    const http2 = connect(origin, { settings: { enablePush: false }, createConnection: () => socket });
    this.#http2 = http2;
    http2.on("remoteSettings", ({ maxConcurrentStreams }) => {
      this.#isReady = true;
      listener.onSettings(maxConcurrentStreams ?? Number.POSITIVE_INFINITY);
    });
    http2.on("goaway", (code, lastStreamId) => {
      this.#lastStreamId = Math.min(this.#lastStreamId, lastStreamId);
      if (code !== constants.NGHTTP2_NO_ERROR) this.reason = `GOAWAY ${code}`;
      this.#isRetired = true;
      listener.onRetired();
      this.close();
    });
    http2.on("error", (error) => this.#onError(error));
    http2.on("close", () => {
      this.#isRetired = true;
      listener.onClosed();
    });
    if (this.#opening.signal.aborted) http2.destroy();
  }

  #onError(error: Error): void {
    const isForeign = !this.#isReady && codeOf(error) === "ERR_HTTP2_ERROR";
    if (!this.#opening.signal.aborted) this.reason = isForeign ? noHttp2 : (codeOf(error) ?? error.name);
  }

  get isOpen(): boolean {
    return this.#isReady && !this.#isRetired && this.#http2?.closed === false && !this.#http2.destroyed;
  }

  request({ path, shared, own = [] }: RequestHead, body: string | Uint8Array, listener: StreamListener) {
    const headers = [":path", path, ...shared, ...own];
    // What differs in each request stays out of the compression table.
    const names = own.filter((_, index) => index % 2 === 0);
    Object.assign(headers, { [sensitiveHeaders]: [":path", ...names] });
    if (this.#http2 === undefined) throw new Error("The connection takes no requests.");
    const stream = this.#http2.request(headers);
    stream.on("response", (fields) => onResponse(fields, listener));
    stream.on("data", (part: Buffer) => listener.onData(part));
    stream.on("trailers", (fields) => listener.onTrailers?.(fieldsOf(fields)));
    // The "close" event, which follows, handles the error.
    stream.on("error", () => {});
    let isComplete = false;
    stream.on("end", () => {
      isComplete = !stream.aborted;
    });
    stream.on("close", () => listener.onEnd(this.#endOf(stream, isComplete)));
    stream.end(body);
    return { cancel: () => stream.close(constants.NGHTTP2_CANCEL) } satisfies ClientStream;
  }

  #endOf({ id, rstCode }: ClientHttp2Stream, hasEnded: boolean) {
    const isRefused = rstCode === constants.NGHTTP2_REFUSED_STREAM;
    // Node.js resets the streams of a connection that ended, by itself.
    const isReset = rstCode !== constants.NGHTTP2_NO_ERROR && !this.#http2?.destroyed;
    return {
      resetCode: isReset ? rstCode : undefined,
      isUnprocessed: isRefused || id === undefined || id > this.#lastStreamId,
      isComplete: hasEnded && rstCode === constants.NGHTTP2_NO_ERROR,
    };
  }

  ping(onResponse: () => void): void {
    if (this.#http2?.destroyed) return;
    this.#http2?.ping((error) => {
      if (error === null) onResponse();
    });
  }

  close(): void {
    if (!this.#isReady) this.destroy("closed");
    this.#isRetired = true;
    if (!this.#http2?.closed && !this.#http2?.destroyed) this.#http2?.close();
  }

  destroy(reason: string): void {
    this.reason = reason;
    this.#opening.abort();
    this.#http2?.destroy();
  }
}

function onResponse(fields: IncomingHttpHeaders, listener: StreamListener): void {
  listener.onResponse(Number(fields[":status"]), fieldsOf(fields));
}

function fieldsOf(fields: IncomingHttpHeaders): ResponseFields {
  return {
    get(name) {
      const value = fields[name];
      return typeof value === "string" ? value : undefined;
    },
  };
}
