/** Responses: when they begin to be sent, and errors as responses, which are problems (RFC 9457). */
import {
  type IncomingMessage,
  type OutgoingHttpHeader,
  type OutgoingHttpHeaders,
  ServerResponse,
} from "node:http";
import type { Http2ServerRequest, Http2ServerResponse, ServerHttp2Stream } from "node:http2";
import type { ServiceError } from "../base/errors.ts";
import type { RequestContext } from "../base/request-context.ts";

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

/** Calls back before the headers of the response are sent, explicitly or with the first of its body. */
export function onceResponding(response: HttpResponse | ServerHttp2Stream, responding: () => void): void {
  if (response instanceof HttpResponse) {
    response.onceResponding(responding);
    return;
  }
  const { respond } = response;
  response.respond = (...args: unknown[]) => {
    response.respond = respond;
    responding();
    Reflect.apply(response.respond, response, args);
  };
}

/** The parts of a response. `body` undefined: the response has no body. */
export interface ResponseParts {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body?: unknown;
}

export function errorHeaders({ retryAfterSeconds, allow, headers }: ServiceError): Record<string, string> {
  return {
    ...headers,
    ...(retryAfterSeconds !== undefined && { "Retry-After": String(retryAfterSeconds) }),
    ...(allow && { Allow: allow.join(", ") }),
  };
}

export function problem(
  context: RequestContext,
  status: number,
  headers: Readonly<Record<string, string>>,
  error: ServiceError,
): ResponseParts {
  const body = {
    type: "about:blank",
    title: error.kind.title,
    status,
    detail: error.message,
    code: error.kind.code,
    requestId: context.requestId,
    ...(error.errors && { errors: error.errors }),
  };
  const type = { "Content-Type": "application/problem+json" };
  return { status, headers: { ...headers, ...errorHeaders(error), ...type }, body };
}

/** A response whose body is JSON already. `content` undefined: the response has no body. */
export interface RenderedResponse {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly content: string | undefined;
}

/** Throws on values that JSON cannot hold. */
export function rendered({ status, headers, body }: ResponseParts): RenderedResponse {
  return { status, headers, content: body === undefined ? undefined : JSON.stringify(body) };
}

export function fetchResponse({ status, headers, content }: RenderedResponse): Response {
  return new Response(content ?? null, { status, headers });
}

export function toResponse(parts: ResponseParts): Response {
  return fetchResponse(rendered(parts));
}

export function sendResponse(response: NodeResponse, { status, headers, content }: RenderedResponse): void {
  const all = content === undefined ? headers : { ...headers, "Content-Length": Buffer.byteLength(content) };
  // Both lines do the same. The two types have no signature in common.
  if ("stream" in response) response.writeHead(status, all);
  else response.writeHead(status, all);
  response.end(content ?? "");
}
