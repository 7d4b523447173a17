import type { MiddlewareHandler } from "hono";
import { cors } from "hono/cors";
import type { Logger } from "pino";
import { RequestContext } from "../base/request-context.ts";
import type { CorsPolicy } from "../door/cors-policy.ts";

export function httpCors(policy: CorsPolicy, logger: Logger): MiddlewareHandler {
  const middleware = cors({
    origin: [...policy.origins],
    allowMethods: [...policy.methods],
    allowHeaders: [...policy.allowedHeaders],
    exposeHeaders: [...policy.exposedHeaders],
    maxAge: policy.maxAgeSeconds,
  });
  return async (c, next) => {
    // A preflight is responded to here.
    const response = await middleware(c, next);
    const id = c.req.header("x-request-id");
    response?.headers.set("X-Request-Id", new RequestContext(logger, id).requestId);
    return response;
  };
}
