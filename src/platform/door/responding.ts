/** When a response begins to be sent: from then on, its client alone decides how long it takes. */
import {
  type IncomingMessage,
  type OutgoingHttpHeader,
  type OutgoingHttpHeaders,
  ServerResponse,
} from "node:http";
import type { Http2ServerRequest, Http2ServerResponse, ServerHttp2Stream } from "node:http2";

/** Node's own requests and responses, of HTTP/1 and of HTTP/2. */
export type NodeRequest = IncomingMessage | Http2ServerRequest;
export type NodeResponse = HttpResponse | Http2ServerResponse;

type HeaderList = OutgoingHttpHeaders | OutgoingHttpHeader[];

/** A response of HTTP/1 that reports when its headers are sent; a class, as own methods make responses slower. */
export class HttpResponse<Request extends IncomingMessage = IncomingMessage> extends ServerResponse<Request> {
  #responding: (() => void) | undefined;

  /** Calls back once, before the headers are sent, explicitly or with the first of the body. */
  onceResponding(responding: () => void): void {
    this.#responding = responding;
  }

  override writeHead(status: number, reason?: string | HeaderList, headers?: HeaderList): this {
    this.#responding?.();
    this.#responding = undefined;
    return typeof reason === "string"
      ? super.writeHead(status, reason, headers)
      : super.writeHead(status, reason ?? headers);
  }
}

/** Calls back when the headers of the response are sent, explicitly or with the first of its body. */
export function onceResponding(response: HttpResponse | ServerHttp2Stream, responding: () => void): void {
  if (response instanceof HttpResponse) {
    response.onceResponding(responding);
    return;
  }
  const { respond } = response;
  response.respond = (...args: unknown[]) => {
    responding();
    Reflect.apply(respond, response, args);
  };
}
