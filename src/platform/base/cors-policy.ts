/**
 * What pages of other origins may do (the CORS protocol of the Fetch standard), on the HTTP APIs and on the
 * RPC protocols alike. Which headers an API has beside everybody's, its composer says.
 */
import { cors as connectCors } from "@connectrpc/connect";

/** The headers that requests of an API may carry, and that its responses have. */
export interface ApiHeaders {
  readonly requestHeaders: readonly string[];
  readonly responseHeaders: readonly string[];
}

/** What every path allows and shows to pages of these origins. The methods of an RPC are its own. */
export interface CorsPolicy {
  /** As browsers spell them. */
  readonly origins: readonly string[];
  /** Of the HTTP APIs. */
  readonly methods: readonly string[];
  readonly allowedHeaders: readonly string[];
  readonly exposedHeaders: readonly string[];
  /** What browsers keep a preflight for, in seconds: so long an origin that is taken away may still ask. */
  readonly maxAgeSeconds: number;
}

/** One policy for all that a port serves: what every API has, what these have, and Connect's and gRPC-Web's own. */
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

/** Each header once, whatever its case, as it is spelled first. */
function distinct(headers: readonly string[]): string[] {
  const first = new Map<string, string>();
  for (const header of headers) {
    const name = header.toLowerCase();
    if (!first.has(name)) first.set(name, header);
  }
  return [...first.values()];
}
