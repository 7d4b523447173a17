/**
 * Composition root of the process: its services on their ports. No side effects but through what it is
 * given, so that a test runs the same server as `npm start`.
 */
import { Hono } from "hono";
import { composeServices, type RunnableService } from "./compose-services.ts";
import { type Clock, systemClock } from "./platform/base/clock.ts";
import { RememberingRouter } from "./platform/http/caching-router.ts";
import { httpCors } from "./platform/http/cors.ts";
import { createManagementServer } from "./platform/http/management-server.ts";
import { createHttpServer } from "./platform/http/server.ts";
import { createMetrics, type Logger } from "./platform/observability/logger.ts";
import { Reminders } from "./platform/observability/reminders.ts";
import { notFound } from "./platform/openapi/bind.ts";
import { createApiReference, createIndex } from "./platform/openapi/reference.ts";
import { createLifecycle, type Lifecycle } from "./platform/process/lifecycle.ts";
import { becomeReady, keepReady } from "./platform/process/readiness.ts";
import { createConnectHandler } from "./platform/rpc/connect-handler.ts";
import { createGrpcServer } from "./platform/rpc/grpc-server.ts";
import type { Settings } from "./services.ts";
import { databaseFailure } from "./start-failure.ts";

/** A server that listens. */
export interface RunningServer {
  readonly lifecycle: Lifecycle;
  readonly ports: { readonly http: number; readonly grpc: number; readonly management: number };
  /** What the databases are, for people. */
  readonly database: string;
  /** Resolves once every part is ready for the first time. */
  readonly ready: Promise<void>;
}

/**
 * Starts everything and returns as soon as the ports listen; `ready` tells when the databases are there too.
 * @throws what listening throws (EADDRINUSE, EACCES)
 */
export async function startServer(
  settings: Settings,
  logger: Logger,
  clock: Clock = systemClock,
): Promise<RunningServer> {
  const { server } = settings;
  const metrics = createMetrics();
  const isDevelopment = server.environment === "development";
  const lifecycle = createLifecycle({
    logger,
    graceSeconds: server.shutdownGraceSeconds,
    drainDelayMs: isDevelopment ? 0 : 2_000,
  });
  const draining = new AbortController();
  const stopping = draining.signal;
  const { services, built } = await composeServices(settings, { logger, metrics, clock });
  for (const { name, stop } of services) lifecycle.add({ name, stop });

  const app = new Hono({ router: new RememberingRouter() });
  if (server.corsOrigins.length > 0) app.use(httpCors(server.corsOrigins));
  const apis = [...services, ...built].map(({ document, basePath = document.basePath, http }) => {
    return { document, basePath, http };
  });
  for (const { document, basePath, http } of apis) {
    app.route("/", createApiReference(document, basePath, logger));
    app.route("/", http);
  }
  app.route("/", createIndex(apis, logger));
  app.notFound(notFound(logger));

  const rpc = { services: services.flatMap((service) => service.rpc), logger, observer: metrics.rpc };
  const http = createHttpServer({
    fetch: app.fetch,
    rpc: createConnectHandler({ ...rpc, corsOrigins: server.corsOrigins, draining: stopping }),
    tls: server.tls,
    logger,
  });
  const grpc = createGrpcServer({ ...rpc, tls: server.tls });
  const management = createManagementServer({ metrics, lifecycle, logger });
  const handles = new Map(
    services.map((service) => [service, lifecycle.readiness.register(`${service.name} database`)]),
  );

  // Stopped in reverse: first the ports, last the management port, so that an operator can watch.
  const ports = { management: await management.listen(server.host, server.managementPort), grpc: 0, http: 0 };
  lifecycle.add({ name: "management", stop: () => management.close() });
  ports.grpc = await grpc.listen(server.host, server.grpcPort);
  lifecycle.add({ name: "grpc", stop: (graceMs) => grpc.close(graceMs) });
  ports.http = await http.listen(server.host, server.port);
  lifecycle.add({ name: "http", stop: (graceMs) => http.close(graceMs) });
  lifecycle.onDrain(() => {
    grpc.setServing(false);
    http.drain();
    draining.abort();
    for (const { stopWorkers } of services) stopWorkers?.();
  });

  const reminders = new Reminders();
  async function start(service: RunnableService): Promise<void> {
    const { database } = service;
    const readiness = handles.get(service);
    if (!readiness) return;
    await becomeReady({
      readiness,
      logger,
      reminders,
      stopping,
      database: database.description,
      explain: databaseFailure,
      migrate: isDevelopment ? () => database.migrate() : undefined,
      isMigrated: () => database.isMigrated(),
      prepare: () => service.prepare(),
    });
    if (stopping.aborted) return;
    grpc.setServing(true, service.rpc);
    service.startWorkers();
    void keepReady({
      readiness,
      stopping,
      answers: () => database.answers(),
      looked: (answered) => grpc.setServing(answered, service.rpc),
    });
  }
  const ready = Promise.all(services.map(start)).then(() => undefined);
  const databases = new Set(services.toReversed().map(({ database }) => database.description));
  return { lifecycle, ports, database: [...databases].join(", "), ready };
}
