/** A request and its response on node:http or node:http2, as unary calls need them: one body in, one out. */
import type { IncomingMessage } from "node:http";
import {
  Http2ServerRequest,
  Http2ServerResponse,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  type ServerHttp2Stream,
} from "node:http2";
import type { HttpResponse, NodeRequest, NodeResponse } from "../door/responses.ts";

/** Takes the body of a request. */
export interface Receiver {
  receive(chunk: Buffer): void;
  /** The body has come as a whole. */
  received(): void;
  /** The response has been sent, or the caller has gone before. */
  closed(): void;
}

export interface HttpExchange {
  readonly method: string | undefined;
  readonly headers: IncomingHttpHeaders;
  /** Call it once. A body that nobody receives is discarded when the response is sent. */
  read(receiver: Receiver): void;
  /** Sends the response; no effect if the caller has gone. @throws if a field is not valid: then `destroy` it */
  send(status: number, headers: OutgoingHttpHeaders, body?: Buffer, trailers?: OutgoingHttpHeaders): void;
  destroy(): void;
  /** Node's own objects, for connect-node: call nothing else then. */
  node(): [NodeRequest, NodeResponse];
}

class Http1Exchange implements HttpExchange {
  readonly #request: IncomingMessage;
  readonly #response: HttpResponse;

  constructor(response: HttpResponse) {
    this.#request = response.req;
    this.#response = response;
  }

  get method(): string | undefined {
    return this.#request.method;
  }

  get headers(): IncomingHttpHeaders {
    return this.#request.headers;
  }

  read(receiver: Receiver): void {
    this.#request.on("data", (chunk: Buffer) => receiver.receive(chunk));
    this.#request.on("end", () => receiver.received());
    if (this.#response.destroyed) receiver.closed();
    else this.#response.on("close", () => receiver.closed());
  }

  send(status: number, headers: OutgoingHttpHeaders, body?: Buffer, trailers?: OutgoingHttpHeaders): void {
    const response = this.#response;
    if (response.destroyed) return;
    if (trailers) {
      response.writeHead(status, { ...headers, trailer: Object.keys(trailers).join(", ") });
      response.write(body ?? "");
      response.addTrailers(trailers);
      response.end();
    } else {
      if (status !== 204) headers["content-length"] = body?.length ?? 0;
      response.writeHead(status, headers).end(body);
    }
    this.#request.resume();
  }

  destroy(): void {
    this.#response.destroy();
  }

  node(): [NodeRequest, NodeResponse] {
    return [this.#request, this.#response];
  }
}

const withTrailers = { waitForTrailers: true };
const withoutBody = { endStream: true };

function ignore(): void {}

export class Http2Exchange implements HttpExchange {
  readonly headers: IncomingHttpHeaders;
  readonly #stream: ServerHttp2Stream;
  readonly #response: Http2ServerResponse | undefined;
  /** Let go when the stream closes: Node's Map of open streams keeps later ones alive. */
  #receiver: Receiver | undefined;

  /** @param response Node's compatibility object, if there is one: it has headers by now, and sends the trailers */
  constructor(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, response?: Http2ServerResponse) {
    this.headers = headers;
    this.#stream = stream;
    this.#response = response;
    // A reset is an error, too, and `close` follows it.
    if (stream.listenerCount("error") === 0) stream.on("error", ignore);
  }

  get method(): string | undefined {
    return this.headers[":method"];
  }

  read(receiver: Receiver): void {
    const stream = this.#stream;
    this.#receiver = receiver;
    stream.on("data", (chunk: Buffer) => this.#receiver?.receive(chunk));
    stream.on("end", () => this.#receiver?.received());
    stream.on("close", () => {
      this.#receiver?.closed();
      this.#receiver = undefined;
    });
    // Node may have said so already.
    if (stream.destroyed) receiver.closed();
    else if (stream.readableEnded) receiver.received();
  }

  send(status: number, headers: OutgoingHttpHeaders, body?: Buffer, trailers?: OutgoingHttpHeaders): void {
    const stream = this.#stream;
    if (stream.destroyed || stream.closed) return;
    headers[":status"] = status;
    const response = this.#response;
    if (response) Object.assign(headers, response.getHeaders());
    if (trailers) {
      stream.respond(headers, withTrailers);
      if (response) response.addTrailers(trailers);
      else stream.on("wantTrailers", () => stream.sendTrailers(trailers));
      stream.end(body);
    } else if (body?.length && this.method !== "HEAD") {
      stream.respond(headers);
      stream.end(body);
    } else stream.respond(headers, withoutBody);
    if (!stream.readableEnded) stream.resume();
  }

  destroy(): void {
    this.#stream.destroy();
  }

  node(): [NodeRequest, NodeResponse] {
    const response = this.#response;
    if (response) return [response.req, response];
    const stream = this.#stream;
    return [new Http2ServerRequest(stream, this.headers, {}, []), new Http2ServerResponse(stream)];
  }
}

/** Over HTTP/2 it is that of the stream, with the fields that the response has by now. */
export function exchangeOf(response: NodeResponse): HttpExchange {
  return "stream" in response
    ? new Http2Exchange(response.stream, response.req.headers, response)
    : new Http1Exchange(response);
}
