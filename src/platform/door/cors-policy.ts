/** What pages of other origins may do (CORS, Fetch standard), on the HTTP APIs and the RPC protocols. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";

export interface ApiHeaders {
  readonly requestHeaders: readonly string[];
  readonly responseHeaders: readonly string[];
}

/** The policy of every path for pages of these origins. An RPC path states its own methods. */
export type CorsPolicy = ReturnType<typeof corsPolicy>;

/** The policy of a whole port: headers of every API, and of these. */
export function corsPolicy(origins: readonly string[], apis: readonly ApiHeaders[]) {
  return {
    origins,
    methods: ["GET", "HEAD", "POST", "PUT", "DELETE"],
    allowedHeaders: distinct([
      ...["Authorization", "If-None-Match", "X-Request-Id", "traceparent"],
      ...apis.flatMap(({ requestHeaders }) => requestHeaders),
    ]),
    exposedHeaders: distinct([
      ...["Allow", "ETag", "Retry-After", "WWW-Authenticate", "X-Request-Id"],
      ...apis.flatMap(({ responseHeaders }) => responseHeaders),
    ]),
    /** Seconds that browsers cache a preflight response, and that a removed origin may still send requests. */
    maxAgeSeconds: 600,
  };
}

/** Sets the headers that let the page of a permitted origin read a response, whatever it is. */
export function setCorsHeaders(
  request: IncomingMessage | Http2ServerRequest,
  response: ServerResponse | Http2ServerResponse,
  cors: CorsPolicy,
): void {
  response.setHeader("vary", "Origin");
  const origin = request.headers.origin;
  if (origin === undefined || !cors.origins.includes(origin)) return;
  response.setHeader("access-control-allow-origin", origin);
  response.setHeader("access-control-expose-headers", cors.exposedHeaders.join(","));
}

/** Each header once, whatever its case, in its first spelling. */
function distinct(headers: readonly string[]): string[] {
  const first = new Map<string, string>();
  for (const header of headers) {
    const name = header.toLowerCase();
    if (!first.has(name)) first.set(name, header);
  }
  return [...first.values()];
}
