/**
 * The management port: liveness, readiness and metrics, for an orchestrator and for Prometheus. Apart from
 * the APIs' port, so that it can be kept off the public network and still answers when that one is busy.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { Logger } from "pino";
import { withoutQuery } from "../base/addresses.ts";
import { asServiceError, ErrorKinds, ServiceError } from "../base/errors.ts";
import { RequestContext } from "../base/request-context.ts";
import type { Metrics } from "../observability/logger.ts";
import { problem } from "../openapi/response.ts";
import type { Lifecycle } from "../process/lifecycle.ts";
import { listening } from "./server.ts";

interface ManagementSettings {
  readonly metrics: Pick<Metrics, "registry">;
  readonly lifecycle: Pick<Lifecycle, "unready">;
  readonly logger: Logger;
}

export interface ManagementServer {
  /**
   * @param port 0 is any free port
   * @returns the port
   */
  listen(host: string, port: number): Promise<number>;
  /** Closes every connection at once. */
  close(): Promise<void>;
}

interface Page {
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
}

/** Serves `GET /health/live`, `/health/ready` and `/metrics`. */
export function createManagementServer({ metrics, lifecycle, logger }: ManagementSettings): ManagementServer {
  const pages = new Map<string, () => Page | Promise<Page>>([
    ["/health/live", () => json(200, { status: "up" })],
    ["/health/ready", readiness],
    ["/metrics", exposition],
  ]);

  function readiness(): Page {
    const notReady = lifecycle.unready();
    return notReady.length === 0 ? json(200, { status: "up" }) : json(503, { status: "down", notReady });
  }

  async function exposition(): Promise<Page> {
    const { registry } = metrics;
    return { status: 200, contentType: registry.contentType, body: await registry.metrics() };
  }

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const page = pages.get(withoutQuery(request.url ?? ""));
    if (!page) throw new ServiceError(ErrorKinds.notFound, `Here are ${[...pages.keys()].join(", ")}.`);
    if (request.method !== "GET" && request.method !== "HEAD") {
      throw new ServiceError(ErrorKinds.methodNotAllowed, "Only GET and HEAD are allowed here.", {
        allow: ["GET", "HEAD"],
      });
    }
    const { status, contentType, body } = await page();
    send(response, status, { "Content-Type": contentType }, body);
  }

  function refuse(request: IncomingMessage, response: ServerResponse, thrown: unknown): void {
    const error = asServiceError(thrown);
    const context = new RequestContext(logger, request.headers["x-request-id"]?.toString());
    if (error.kind.status >= 500) context.log.error({ err: thrown }, "the management port failed to answer");
    const { status, headers, body } = problem(context, error.kind.status, {}, error);
    send(response, status, { ...headers, "X-Request-Id": context.requestId }, JSON.stringify(body));
  }

  const server = createServer({ headersTimeout: 10_000, requestTimeout: 10_000 }, (request, response) => {
    answer(request, response).catch((thrown: unknown) => refuse(request, response, thrown));
  });

  return {
    listen: (host, port) => listening(server, host, port),
    close() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeAllConnections();
      return closed;
    },
  };
}

function json(status: number, body: object): Page {
  return { status, contentType: "application/json", body: JSON.stringify(body) };
}

/** Node leaves the body out where the request is HEAD. */
function send(response: ServerResponse, status: number, headers: Record<string, string>, body: string): void {
  const length = Buffer.byteLength(body);
  response.writeHead(status, { ...headers, "Cache-Control": "no-store", "Content-Length": length }).end(body);
}
