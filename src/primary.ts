/** The primary of several workers: the management port, and what is done once for all of them. It loads no service. */
import { createServer } from "node:net";
import { prometheusContentType } from "prom-client";
import { startManagement } from "./platform/http/management.ts";
import { listening } from "./platform/http/server.ts";
import type { Logger } from "./platform/observability/logger.ts";
import { createLifecycle, nodeProcess } from "./platform/process/lifecycle.ts";
import { heapFlags } from "./platform/process/v8-flags.ts";
import { exitBadSettings } from "./platform/settings/settings.ts";
import { Workers } from "./platform/workers/workers.ts";
import type { RunningServer } from "./server.ts";
import type { Settings } from "./services.ts";

/** Seconds beyond the grace of the workers, of which each part has half a second even when that is over. */
const extraGraceSeconds = 10;

type Ready = Pick<RunningServer, "settings" | "ports" | "database">;

/** Starts the workers, and handles the signals. @param ready called when the first of them listens @throws errors of listening */
export async function startPrimary(
  settings: Settings,
  logger: Logger,
  ready: (server: Ready) => void,
): Promise<void> {
  const { server } = settings;
  const { shutdownDelaySeconds, shutdownGraceSeconds } = server;
  const graceSeconds = shutdownDelaySeconds + shutdownGraceSeconds + extraGraceSeconds;
  const lifecycle = createLifecycle({ logger, graceSeconds });
  const events = nodeProcess(logger);
  const http = await reservePort(server.host, server.port);
  const grpc = await reservePort(server.host, server.grpcPort);
  const known = await settings.listeningOn({ http: http.port, grpc: grpc.port });
  const workers = new Workers({
    count: server.workers,
    logger,
    output: process.stdout,
    execArgv: [...process.execArgv, ...heapFlags(server)],
    env: {
      ...setting("WORKERS", server.workers),
      ...setting("SERVER_PORT", http.port),
      ...setting("GRPC_PORT", grpc.port),
    },
    finalCode: exitBadSettings,
    async beforeListening() {
      await Promise.all([http.release(), grpc.release()]);
    },
    ready({ database, warning }) {
      if (warning !== undefined) logger.warn(warning);
      ready({ settings: known, ports, database });
    },
    failed: (code) => void lifecycle.shutdown("workers cannot start").then(() => events.exit(code)),
  });
  lifecycle.onDrain(() => workers.stop("SIGTERM"));
  const registry = { metrics: () => workers.metrics(), contentType: prometheusContentType };
  const unready = () => [...lifecycle.unready(), ...workers.unready()];
  const management = await startManagement(server, {
    metrics: { registry },
    lifecycle: { add: lifecycle.add, unready },
    warnings: () => workers.warnings(),
    logger,
  });
  const ports = { http: http.port, grpc: grpc.port, management };
  // After the management port, so that it stops before.
  lifecycle.add({ name: "workers", stop: () => workers.ended() });
  // However this process ends: one that is stopped or busy does not notice that it has lost its primary.
  process.once("exit", () => workers.kill());
  lifecycle.run(events);
  workers.start();
  logger.info({ ports, workers: server.workers }, "Starting workers");
}

/** A variable of the environment, whether the setting itself came from it or from a file. */
function setting(name: string, value: number): Record<string, string> {
  return { [name]: String(value), [`${name}_FILE`]: "" };
}

interface ReservedPort {
  readonly port: number;
  /** Leaves the port to the workers. */
  release(): Promise<void>;
}

/**
 * Finds out now whether the port is free, since the workers listen much later; keeps one that the system has chosen
 * until then. @throws errors of listening
 */
async function reservePort(host: string, wanted: number): Promise<ReservedPort> {
  const server = createServer((socket) => socket.destroy());
  const port = await listening(server, host, wanted);
  let closed: Promise<void> | undefined;
  const release = () => {
    closed ??= new Promise((resolve) => server.close(() => resolve()));
    return closed;
  };
  if (wanted !== 0) await release();
  return { port, release };
}
