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

/** The headers that an error sets, whatever the format of its body. */
export function errorHeaders({ retryAfterSeconds, allow }: ServiceError): Record<string, string> {
  return {
    ...(retryAfterSeconds !== undefined && { "Retry-After": String(retryAfterSeconds) }),
    ...(allow && { Allow: allow.join(", ") }),
  };
}

/** The error as `application/problem+json`. */
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

/** The response as the Fetch API has it, with a JSON body. */
export function toResponse({ status, headers, body }: ResponseParts): Response {
  return new Response(body === undefined ? null : JSON.stringify(body), { status, headers });
}

/** Sends the response without the Fetch API. */
export function sendResponse(
  response: ServerResponse | Http2ServerResponse,
  { status, headers, body }: ResponseParts,
): void {
  const content = body === undefined ? "" : JSON.stringify(body);
  response.statusCode = status;
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
  response.setHeader("Content-Length", Buffer.byteLength(content));
  response.end(content);
}
