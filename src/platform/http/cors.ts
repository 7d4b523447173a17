import type { MiddlewareHandler } from "hono";
import { cors } from "hono/cors";
import type { CorsPolicy } from "../base/cors-policy.ts";

/** The CORS policy as middleware of the HTTP APIs. */
export function httpCors(policy: CorsPolicy): MiddlewareHandler {
  return cors({
    origin: [...policy.origins],
    allowMethods: [...policy.methods],
    allowHeaders: [...policy.allowedHeaders],
    exposeHeaders: [...policy.exposedHeaders],
    maxAge: policy.maxAgeSeconds,
  });
}
