/**
 * What pages of other origins may do (the CORS protocol of the Fetch standard), on the HTTP APIs and on the
 * RPC protocols alike. The caller passes in the headers that only some APIs have.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import { cors as connectCors } from "@connectrpc/connect";

/** The headers that requests of an API may carry, and that its responses have. */
export interface ApiHeaders {
  readonly requestHeaders: readonly string[];
  readonly responseHeaders: readonly string[];
}

/** The policy of every path for pages of these origins. An RPC path states its own methods. */
export interface CorsPolicy {
  /** The origins, as browsers send them in `Origin`. */
  readonly origins: readonly string[];
  /** The methods of the HTTP APIs. */
  readonly methods: readonly string[];
  readonly allowedHeaders: readonly string[];
  readonly exposedHeaders: readonly string[];
  /**
   * Seconds that browsers cache a preflight response. An origin that is removed may still send requests for as long.
   */
  readonly maxAgeSeconds: number;
}

/**
 * One policy for a whole port: the headers that every API has, those of these APIs, and those of Connect and gRPC-Web.
 */
export function corsPolicy(origins: readonly string[], apis: readonly ApiHeaders[]): CorsPolicy {
  return {
    origins,
    methods: ["GET", "HEAD", "POST", "PUT", "DELETE"],
    allowedHeaders: distinct([
      ...["Authorization", "If-None-Match", "X-Request-Id", "traceparent"],
      ...apis.flatMap(({ requestHeaders }) => requestHeaders),
      ...connectCors.allowedHeaders,
    ]),
    exposedHeaders: distinct([
      ...["Allow", "ETag", "Retry-After", "WWW-Authenticate", "X-Request-Id"],
      ...apis.flatMap(({ responseHeaders }) => responseHeaders),
      ...connectCors.exposedHeaders,
    ]),
    maxAgeSeconds: 600,
  };
}

/** Sets the headers that let the page of a permitted origin read a response, whatever it is. */
export function setCorsHeaders(
  request: IncomingMessage | Http2ServerRequest,
  response: ServerResponse | Http2ServerResponse,
  cors: CorsPolicy | undefined,
): void {
  if (!cors?.origins.length) return;
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
