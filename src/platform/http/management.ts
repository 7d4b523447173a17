/** Liveness, readiness and metrics, on a port that can be kept private and responds while the others are busy. */
import { type Context, Hono } from "hono";
import type { Logger } from "pino";
import { asServiceError, ErrorKinds, ServiceError } from "../base/errors.ts";
import { RequestContext } from "../base/request-context.ts";
import { problem, toResponse } from "../door/responses.ts";
import type { Metrics } from "../observability/metrics.ts";
import type { Lifecycle, Unready } from "../process/lifecycle.ts";
import { createHttpServer } from "./server.ts";

/** Milliseconds that a probe or a scrape has to finish: both are repeated anyway. */
const closeMs = 500;

interface Dependencies {
  readonly metrics: { readonly registry: Pick<Metrics["registry"], "metrics" | "contentType"> };
  readonly lifecycle: Pick<Lifecycle, "unready">;
  /** What the process cannot do, though it is ready; nothing unless given. */
  readonly warnings?: () => readonly Unready[];
  readonly logger: Logger;
}

interface Address {
  readonly host: string;
  /** 0 is any free one. */
  readonly managementPort: number;
}

/** Opens the management port, as a part of the lifecycle. @returns its number */
export async function startManagement(
  { host, managementPort }: Address,
  dependencies: Dependencies & { readonly lifecycle: Pick<Lifecycle, "add"> },
): Promise<number> {
  const management = createHttpServer({ logger: dependencies.logger, defaultHost: "localhost" });
  management.serve({ fetch: createManagementApp(dependencies).fetch });
  const port = await management.listen(host, managementPort);
  dependencies.lifecycle.add({ name: "management", stop: () => management.close(closeMs) });
  return port;
}

/** Serves `GET /health/live`, `/health/ready` and `/metrics`. */
export function createManagementApp({ lifecycle, warnings, logger, ...dependencies }: Dependencies): Hono {
  const { registry } = dependencies.metrics;
  const app = new Hono();
  app.use(async (c, next) => {
    await next();
    c.header("Cache-Control", "no-store");
  });
  app.get("/health/live", (c) => page(c, 200, { status: "up" }));
  app.get("/health/ready", (c) => {
    const notReady = lifecycle.unready();
    if (notReady.length > 0) return page(c, 503, { status: "down", notReady });
    const known = warnings?.() ?? [];
    return page(c, 200, { status: "up", ...(known.length > 0 && { warnings: known }) });
  });
  app.get("/metrics", async (c) => page(c, 200, await registry.metrics(), registry.contentType));

  const paths = app.routes.filter(({ method }) => method === "GET").map(({ path }) => path);
  for (const path of paths) {
    app.all(path, () => {
      throw new ServiceError(ErrorKinds.methodNotAllowed, "Only GET and HEAD are allowed here.", {
        allow: ["GET", "HEAD"],
      });
    });
  }
  app.notFound(() => {
    throw new ServiceError(ErrorKinds.notFound, `Here are ${paths.join(", ")}.`);
  });
  app.onError((thrown, c) => {
    const error = asServiceError(thrown);
    const context = new RequestContext(logger, c.req.header("x-request-id"));
    if (error.kind.status >= 500)
      context.log.error({ err: thrown }, "A request to the management port failed");
    return toResponse(problem(context, error.kind.status, { "X-Request-Id": context.requestId }, error));
  });
  return app;
}

/** A response with its length, so that a response to HEAD has it too. */
function page(c: Context, status: 200 | 503, content: object | string, type = "application/json"): Response {
  const body = typeof content === "string" ? content : JSON.stringify(content);
  return c.body(body, status, { "Content-Type": type, "Content-Length": `${Buffer.byteLength(body)}` });
}
