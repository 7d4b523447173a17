/**
 * What pages of the origins in CORS_ORIGINS may do, on the HTTP APIs and on the RPC protocols alike. The
 * methods of an RPC are its own.
 */
import { cors as connectCors } from "@connectrpc/connect";
import type { MiddlewareHandler } from "hono";
import { cors } from "hono/cors";

/** What every path allows and shows. */
export const corsPolicy = {
  /** Of the HTTP APIs. */
  methods: ["GET", "HEAD", "POST", "PUT", "DELETE"],
  /** Those of the APIs, and those of Connect and gRPC-Web. */
  allowedHeaders: [
    ...["Authorization", "If-None-Match", "X-Api-Key", "X-Request-Id", "traceparent"],
    ...["Idempotency-Key", "barrier-user-utc-offset"],
    ...connectCors.allowedHeaders,
  ],
  exposedHeaders: [
    ...["Allow", "ETag", "Notification-Id", "Retry-After", "WWW-Authenticate", "X-Request-Id"],
    ...connectCors.exposedHeaders,
  ],
  /** What browsers keep a preflight for, in seconds: so long an origin that is taken away may still ask. */
  maxAgeSeconds: 600,
} as const;

/** The policy as middleware of the HTTP APIs. */
export function httpCors(origins: readonly string[]): MiddlewareHandler {
  return cors({
    origin: [...origins],
    allowMethods: [...corsPolicy.methods],
    allowHeaders: [...corsPolicy.allowedHeaders],
    exposeHeaders: [...corsPolicy.exposedHeaders],
    maxAge: corsPolicy.maxAgeSeconds,
  });
}
