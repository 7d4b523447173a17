/** Composition root of the process: its services on their ports. It reads no environment and handles no signal. */
import { setDefaultAutoSelectFamilyAttemptTimeout } from "node:net";
import { Hono } from "hono";
import { TrieRouter } from "hono/router/trie-router";
import manifest from "../package.json" with { type: "json" };
import { composeServices, type RunnableService } from "./compose-services.ts";
import { type Clock, systemClock } from "./platform/base/clock.ts";
import { Reminders } from "./platform/base/reminders.ts";
import { traceWith } from "./platform/base/tracing.ts";
import { databaseFailure } from "./platform/database/failure.ts";
import { ForeignHistoryError } from "./platform/database/migrations/migrations.ts";
import { Admission } from "./platform/door/admission.ts";
import { corsPolicy } from "./platform/door/cors-policy.ts";
import { type Certificate, followCertificate } from "./platform/http/certificate.ts";
import { startManagement } from "./platform/http/management.ts";
import { createHttpServer } from "./platform/http/server.ts";
import { createFileLogger, type Logger } from "./platform/observability/logger.ts";
import { createMetrics } from "./platform/observability/metrics.ts";
import { apiHeaders } from "./platform/openapi/api-headers.ts";
import { notFound } from "./platform/openapi/bind.ts";
import { createApiReference, createIndex } from "./platform/openapi/reference.ts";
import { createLifecycle, type Lifecycle, type ReadinessHandle } from "./platform/process/lifecycle.ts";
import { becomeReady, followDatabase, prepareBroker } from "./platform/process/readiness.ts";
import { createGrpcServer } from "./platform/rpc/grpc-server.ts";
import { createRpcHandler } from "./platform/rpc/handler.ts";
import { rpcHeaders } from "./platform/rpc/service.ts";
import { SettingsError } from "./platform/settings/settings.ts";
import type { Primary } from "./platform/workers/worker.ts";
import { poolWarning } from "./pool-warning.ts";
import type { Settings } from "./services.ts";

/** The name of this program in the metrics and in the index of the APIs. */
const programName = "gatepost";

/** TLS 1.3, and of TLS 1.2 the suites with forward secrecy and authenticated encryption (RFC 9325 section 4.2). */
const cipherSuites = [
  "TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256",
  "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384",
  "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305",
].join(":");

/** Milliseconds: among workers a connection of HTTP/2 is one worker's, so its client is to come anew now and then. */
const maxConnectionAgeMs = 300_000;

export interface RunningServer {
  readonly lifecycle: Lifecycle;
  /** The settings, with the actual ports. */
  readonly settings: Settings;
  readonly ports: { readonly http: number; readonly grpc: number; readonly management: number };
  /** The databases, for messages. */
  readonly database: string;
  /** Resolves once every part is ready for the first time; in a worker, once the ports then listen. */
  readonly ready: Promise<void>;
}

/**
 * Starts everything; returns as soon as the ports listen. A worker, which has no management port and whose ports have
 * their numbers, listens once it is ready and its primary lets it.
 *
 * @throws errors of listening (EADDRINUSE, EACCES); in a worker, `ready` rejects with them
 */
export async function startServer(
  settings: Settings,
  logger: Logger,
  clock: Clock = systemClock,
  primary?: Primary,
): Promise<RunningServer> {
  const { server } = settings;
  const { host } = server;
  const tls = server.tls && { ...server.tls, ciphers: cipherSuites };
  // Milliseconds until Node gives an address up for the host's next one: a host may be as far away.
  setDefaultAutoSelectFamilyAttemptTimeout(500);
  const metrics = createMetrics(programName, manifest.version);
  const lifecycle = createLifecycle({
    logger,
    graceSeconds: server.shutdownGraceSeconds,
    drainDelayMs: server.shutdownDelaySeconds * 1_000,
  });
  // Added to the lifecycle first, so that tracing stops last.
  await startTracing(settings, lifecycle, logger);
  const stop = new AbortController();
  const stopping = stop.signal;

  const ageing = { maxConnectionAgeMs: primary && maxConnectionAgeMs };
  const http = createHttpServer({ tls, logger, ...ageing });
  const admission = new Admission({ logger, observer: metrics.admission });
  const grpc = createGrpcServer({ logger, observer: metrics.rpc, tls, admission, ...ageing });
  if (server.tls && server.rereadTls) {
    const use = (certificate: Certificate) => {
      for (const port of [http, grpc]) port.useCertificate(certificate);
    };
    const stop = followCertificate({ first: server.tls, read: server.rereadTls, use, logger });
    lifecycle.add({ name: "certificate", stop: async () => stop() });
  }
  // A port that the system chooses may be opened before the services exist: no client has its number yet.
  const known = await settings.listeningOn({
    http: server.port || (await http.listen(host, 0)),
    grpc: server.grpcPort || (await grpc.listen(host, 0)),
  });
  const eventLog = server.eventLog === undefined ? undefined : await openEventLog(server.eventLog);
  const composed = await composeServices(known, { logger, eventLog, metrics, clock });
  const { services } = composed;
  for (const { name, stop: stopService } of services) lifecycle.add({ name, stop: stopService });

  serveApis({ composed, http, grpc, admission, metrics, logger, origins: server.corsOrigins, stopping });
  const warnings = () => services.flatMap((service) => service.warnings?.() ?? []);
  primary?.shows({ unready: lifecycle.unready, warnings, metrics: () => metrics.registry.metrics() });
  const handles = new Map(
    services.map((service) => [service, lifecycle.readiness.register(`${service.name} database`)]),
  );
  const brokers = services.flatMap(({ name, broker }) =>
    broker ? [{ service: name, ...broker, readiness: lifecycle.readiness.register(`${name} broker`) }] : [],
  );

  // Stopped in reverse order: the API ports, then the management port, for an operator to watch, then the services.
  const management = primary
    ? server.managementPort
    : await startManagement(server, { metrics, lifecycle, warnings, logger });
  const listen = async () => {
    if (server.grpcPort !== 0) await grpc.listen(host, server.grpcPort);
    lifecycle.add({ name: "grpc", stop: (graceMs) => grpc.close(graceMs) });
    if (server.port !== 0) await http.listen(host, server.port);
    lifecycle.add({ name: "http", stop: (graceMs) => http.close(graceMs) });
  };
  if (!primary) await listen();
  lifecycle.onDrain(() => {
    grpc.setServing(false);
    http.drain();
    stop.abort();
    for (const { stopWorkers } of services) stopWorkers?.();
  });

  const reminders = new Reminders();
  const isDevelopment = server.environment === "development";
  const starting = { grpc, logger, reminders, stopping, isDevelopment };
  const ready = Promise.all([
    ...services.map(async (service) => {
      const readiness = handles.get(service);
      if (readiness) await startService(service, { ...starting, readiness });
    }),
    ...brokers.map((broker) => prepareBroker({ ...broker, logger, reminders, stopping })),
  ]).then(async () => {
    if (!primary || stopping.aborted) return;
    await primary.mayListen();
    if (stopping.aborted) return;
    await listen();
    primary.listens({ database, warning: await poolWarning(known, services) });
  });
  const database = [...new Set(services.toReversed().map((one) => one.database.description))].join(", ");
  const ports = { http: known.server.port, grpc: known.server.grpcPort, management };
  return { lifecycle, settings: known, ports, database, ready };
}

interface Serving {
  readonly composed: Awaited<ReturnType<typeof composeServices>>;
  readonly http: ReturnType<typeof createHttpServer>;
  readonly grpc: ReturnType<typeof createGrpcServer>;
  readonly admission: Admission;
  readonly metrics: ReturnType<typeof createMetrics>;
  readonly logger: Logger;
  readonly origins: readonly string[];
  readonly stopping: AbortSignal;
}

function serveApis({ composed, http, grpc, admission, metrics, logger, origins, stopping }: Serving): void {
  const { services, builtIn } = composed;
  const app = new Hono({ router: new TrieRouter() });
  const apis = [...services, ...builtIn];
  const cors = corsPolicy(origins, [...apis.map(({ document }) => apiHeaders(document)), rpcHeaders]);
  for (const api of apis) {
    app.route("/", createApiReference(api.document, logger));
    app.route("/", api.http.app);
  }
  app.route("/", createIndex(programName, apis, logger));
  app.notFound(notFound(logger));

  const rpc = {
    services: services.flatMap((service) => service.rpc),
    logger,
    observer: metrics.rpc,
    draining: stopping,
  };
  const routes = [...apis.flatMap((api) => api.http.routes), ...createRpcHandler(rpc).routes];
  admission.register(routes.flatMap(({ sheddable }) => sheddable ?? []));
  http.serve({ fetch: app.fetch, routes, cors, admission });
  grpc.serve(rpc.services);
}

interface Starting {
  readonly grpc: ReturnType<typeof createGrpcServer>;
  readonly logger: Logger;
  readonly readiness: ReadinessHandle;
  readonly reminders: Reminders;
  readonly stopping: AbortSignal;
  readonly isDevelopment: boolean;
}

/** Prepares a service and starts its workers once its database can be used. Resolves when it is ready first. */
async function startService(
  service: RunnableService,
  { grpc, isDevelopment, ...shared }: Starting,
): Promise<void> {
  const { database } = service;
  const part = { ...shared, service: service.name, database: database.description };
  await becomeReady({
    ...part,
    explain: databaseFailure,
    migrate: isDevelopment ? () => database.migrate() : undefined,
    isMigrated: () => database.isMigrated(),
    async prepare() {
      if (!isDevelopment) await database.requireOrdinaryUser();
      await service.prepare();
    },
    isFinal: (error) => error instanceof SettingsError || error instanceof ForeignHistoryError,
  });
  if (part.stopping.aborted) return;
  grpc.setServing(true, service.rpc);
  service.startWorkers();
  void followDatabase({
    ...part,
    isReachable: () => database.isReachable(),
    checked: (reachable) => grpc.setServing(reachable, service.rpc),
  });
}

/** @throws SettingsError if the file cannot be written */
async function openEventLog(path: string): Promise<Logger> {
  return createFileLogger(path).catch((error: Error) => {
    const what = `cannot be written to: ${error.message}`;
    throw new SettingsError([{ name: "EVENT_LOG", what, example: "EVENT_LOG=/var/log/events.jsonl" }]);
  });
}

/** OpenTelemetry is loaded here, and nowhere else. */
async function startTracing(
  { tracing, auth, push }: Settings,
  lifecycle: Lifecycle,
  logger: Logger,
): Promise<void> {
  if (!tracing) return;
  const { createOtlpTracer } = await import("./platform/observability/otlp-tracer.ts");
  const serviceName = auth && push ? programName : `${programName}-${auth ? "auth" : "push"}`;
  const program = { name: programName, version: manifest.version };
  const tracer = createOtlpTracer({ settings: tracing, serviceName, program, logger });
  traceWith(tracer);
  lifecycle.add({
    name: "traces",
    async stop(graceMs) {
      traceWith(undefined);
      await tracer.close(graceMs);
    },
  });
}
