/** Both servers of the RPC layer on ports of their own, with their log and metrics in memory. */
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import { createServer as createHttp2Server, type Http2Server } from "node:http2";
import { type Logger, pino } from "pino";
import type { RpcObserver } from "../../src/platform/base/observers.ts";
import { applyCors, type CorsPolicy } from "../../src/platform/door/cors-policy.ts";
import { HttpResponse } from "../../src/platform/door/responses.ts";
import { withoutQuery } from "../../src/platform/door/targets.ts";
import { createGrpcServer, type GrpcServer } from "../../src/platform/rpc/grpc-server.ts";
import { createRpcHandler, type RpcHandlerOptions } from "../../src/platform/rpc/handler.ts";
import { type Seen, testServices } from "./rpc-services.ts";

type Completed = Parameters<RpcObserver["completed"]>[0];

export interface Recorder {
  readonly logger: Logger;
  readonly observer: RpcObserver;
  /** Lines of the log, as JSON texts. */
  readonly lines: string[];
  readonly completed: Completed[];
}

export function recorder(): Recorder {
  const lines: string[] = [];
  const completed: Completed[] = [];
  return {
    lines,
    completed,
    logger: pino({ level: "debug" }, { write: (line: string) => void lines.push(line) }),
    observer: { serves() {}, completed: (info) => void completed.push(info) },
  };
}

export interface RpcServers extends Recorder {
  readonly seen: Seen;
  readonly grpc: GrpcServer;
  readonly grpcPort: number;
  /** HTTP/1.1. */
  readonly http1Port: number;
  /** Cleartext HTTP/2. */
  readonly http2Port: number;
  readonly draining: AbortController;
  close(): Promise<void>;
}

/** Serves the test services, or those of the options, on all three. */
export async function startRpcServers(
  options: Partial<RpcHandlerOptions> & { readonly cors?: CorsPolicy } = {},
): Promise<RpcServers> {
  const record = recorder();
  const { services: samples, seen } = testServices();
  const { services = samples } = options;
  const draining = new AbortController();
  const grpc = createGrpcServer(record);
  grpc.serve(services);
  const handler = createRpcHandler({ services, ...record, draining: draining.signal, ...options });
  const routeOf = (url = "") =>
    handler.routes.find(({ path }) => path === withoutQuery(url)) ?? handler.unknown;
  const http1 = createServer({ ServerResponse: HttpResponse }, (request, response) => {
    // As the door does.
    if (!options.cors || !applyCors(request, response, options.cors))
      void routeOf(request.url).handle(request, response);
  });
  const http2 = createHttp2Server();
  http2.on("stream", (stream, headers) => void routeOf(headers[":path"]).handleStream(stream, headers));
  const [grpcPort, http1Port, http2Port] = await Promise.all([
    grpc.listen("127.0.0.1", 0),
    listen(http1),
    listen(http2),
  ]);
  grpc.setServing(true);
  return {
    ...record,
    seen,
    grpc,
    grpcPort,
    http1Port,
    http2Port,
    draining,
    async close() {
      http1.closeAllConnections();
      http1.close();
      http2.close();
      await grpc.close(100);
    },
  };
}

async function listen(server: Server | Http2Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (typeof address !== "object" || address === null) throw new Error("not listening");
  return address.port;
}
