/** An error as an HTTP response: a problem (RFC 9457). */
import type { ServerResponse } from "node:http";
import type { Http2ServerResponse } from "node:http2";
import type { ServiceError } from "./errors.ts";
import type { RequestContext } from "./request-context.ts";

/** The parts of a response. `body` undefined: the response has no body. */
export interface ResponseParts {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body?: unknown;
}

export function errorHeaders({ retryAfterSeconds, allow }: ServiceError): Record<string, string> {
  return {
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

export function sendResponse(
  response: ServerResponse | Http2ServerResponse,
  { status, headers, content }: RenderedResponse,
): void {
  const all = content === undefined ? headers : { ...headers, "Content-Length": Buffer.byteLength(content) };
  // Both lines do the same. The two types have no signature in common.
  if ("stream" in response) response.writeHead(status, all);
  else response.writeHead(status, all);
  response.end(content ?? "");
}
