/** What pages of other origins may do (CORS, Fetch standard), on the HTTP APIs and the RPC protocols. */
import { requestIdOf } from "../base/request-context.ts";
import { type NodeRequest, type NodeResponse, sendResponse } from "./responses.ts";

export interface ApiHeaders {
  readonly requestHeaders: readonly string[];
  readonly responseHeaders: readonly string[];
}

/** The policy of every path for pages of these origins. */
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

/**
 * Sets the headers that let the page of a permitted origin read a response, whatever it is; one with a Vary of its own
 * names Origin there. @returns true if the request is a preflight, which has its response now
 */
export function applyCors(
  { method, headers: { origin, "x-request-id": id } }: NodeRequest,
  response: NodeResponse,
  cors: CorsPolicy,
): boolean {
  response.setHeader("vary", "Origin");
  if (origin === undefined || !cors.origins.includes(origin)) return false;
  response.setHeader("access-control-allow-origin", origin);
  response.setHeader("access-control-expose-headers", cors.exposedHeaders.join(","));
  if (method !== "OPTIONS") return false;
  response.setHeader("access-control-allow-methods", cors.methods.join(","));
  response.setHeader("access-control-allow-headers", cors.allowedHeaders.join(","));
  response.setHeader("access-control-max-age", cors.maxAgeSeconds);
  const headers = { "X-Request-Id": requestIdOf(id) };
  sendResponse(response, { status: 204, headers, content: undefined });
  return true;
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
