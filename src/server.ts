/**
 * One process: its services on their ports, made ready, watched, and stopped. No side effects but through
 * what it is given, so that a test runs the same server as `npm start`.
 */
import { setTimeout } from "node:timers/promises";
import { sql } from "drizzle-orm";
import { Hono } from "hono";
import { cors } from "hono/cors";
import { type AuthService, createAuthService } from "./auth/service.ts";
import type { AuthSettings } from "./auth/settings.ts";
import { builtInVerifierPath } from "./auth/settings-table.ts";
import { createOtpVerifier } from "./otp-verifier/service.ts";
import { createApiReference } from "./platform/api-reference.ts";
import { type Clock, systemClock } from "./platform/clock.ts";
import { createConnectHandler } from "./platform/connect-handler.ts";
import { notFound } from "./platform/contract/bind.ts";
import { developmentSecrets } from "./platform/development-secrets.ts";
import { createGrpcServer } from "./platform/grpc-server.ts";
import { createHttpServer } from "./platform/http-server.ts";
import { createLifecycle, type Lifecycle, type ReadinessHandle } from "./platform/lifecycle.ts";
import { createManagementServer } from "./platform/management.ts";
import type { ServerSettings } from "./platform/server-settings.ts";
import { createMetrics, type Logger } from "./platform/telemetry.ts";

export interface Settings {
  readonly server: ServerSettings;
  readonly auth: AuthSettings;
}

/** A server that listens. */
export interface RunningServer {
  readonly lifecycle: Lifecycle;
  readonly ports: { readonly http: number; readonly grpc: number; readonly management: number };
  /** What the database is, for people. */
  readonly database: string;
  /** Resolves once every part is ready for the first time. */
  readonly ready: Promise<void>;
}

/** Milliseconds between looks at the database, and between tries to get ready. */
const watchIntervalMs = 2_000;
const retryIntervalMs = 1_000;
/** One try in so many is told in the log. */
const retriesUntold = 30;

/**
 * Starts everything and returns as soon as the ports listen; `ready` tells when the database is there too.
 * @throws what listening throws (EADDRINUSE, EACCES)
 */
export async function startServer(
  { server, auth: settings }: Settings,
  logger: Logger,
  clock: Clock = systemClock,
): Promise<RunningServer> {
  const metrics = createMetrics();
  const isDevelopment = server.environment === "development";
  const lifecycle = createLifecycle({
    logger,
    graceSeconds: server.shutdownGraceSeconds,
    drainDelayMs: isDevelopment ? 0 : 2_000,
  });
  const draining = new AbortController();
  const auth = await createAuthService({
    settings,
    logger,
    metrics,
    validateResponses: isDevelopment,
    clock,
  });
  lifecycle.add({ name: "auth", stop: () => auth.stop() });

  const app = new Hono();
  if (server.corsOrigins.length > 0) {
    app.use(
      cors({
        origin: [...server.corsOrigins],
        allowHeaders: ["authorization", "content-type", "x-api-key", "x-request-id", "traceparent"],
        exposeHeaders: ["x-request-id", "retry-after", "etag", "www-authenticate", "allow"],
        maxAge: 600,
      }),
    );
  }
  app.route("/", createApiReference(auth.document, auth.document.basePath, logger));
  app.route("/", auth.http);
  if (settings.otp.builtIn) {
    const verifier = await createOtpVerifier({
      issuer: settings.otp.issuer,
      privateKey: developmentSecrets(server.dataDir).otp.privateKey,
      logger,
      observer: metrics.http,
      clock,
      validateResponses: true,
    });
    app.route("/", createApiReference(verifier.document, builtInVerifierPath, logger));
    app.route("/", verifier.http);
  }
  app.notFound(notFound(logger));

  const rpc = { services: auth.rpc, logger, observer: metrics.rpc };
  const http = createHttpServer({
    fetch: app.fetch,
    rpc: createConnectHandler({ ...rpc, corsOrigins: server.corsOrigins, draining: draining.signal }),
    tls: server.tls,
    logger,
  });
  const grpc = createGrpcServer({ ...rpc, tls: server.tls });
  const management = createManagementServer({ metrics, lifecycle, logger });
  const readiness = lifecycle.readiness.register("auth database");

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
  });

  const ready = prepare(auth, readiness, isDevelopment, logger, draining.signal).then(() => {
    if (draining.signal.aborted) return;
    grpc.setServing(true);
    auth.startWorkers();
    void watch(auth, readiness, draining.signal, (serving) => grpc.setServing(serving));
  });
  return { lifecycle, ports, database: auth.database.description, ready };
}

/** Tries until it succeeds: a database that starts later than this process is no reason to fail. */
async function prepare(
  auth: AuthService,
  readiness: ReadinessHandle,
  migrate: boolean,
  logger: Logger,
  stopping: AbortSignal,
): Promise<void> {
  let before = "";
  for (let round = 0; !stopping.aborted; round += 1) {
    // What is in the way is told when it begins, and then now and again.
    const isNews = (state: string) => state !== before || round % retriesUntold === 0;
    let state = "migrations are pending";
    try {
      if (migrate) await auth.database.migrate();
      if (await auth.database.isMigrated()) {
        await auth.prepare();
        readiness.ready();
        return;
      }
      logger[isNews(state) ? "error" : "debug"](`${state}: run npm run migrate as the migration user`);
    } catch (err) {
      state = "does not answer";
      logger[isNews(state) ? "warn" : "debug"](
        { err },
        "the database is not ready; trying again every second",
      );
    }
    readiness.notReady(state);
    before = state;
    await setTimeout(retryIntervalMs, undefined, { signal: stopping }).catch(() => undefined);
  }
}

/** Keeps readiness true to whether the database answers. */
async function watch(
  auth: AuthService,
  readiness: ReadinessHandle,
  stopping: AbortSignal,
  serving: (serving: boolean) => void,
): Promise<void> {
  while (!stopping.aborted) {
    await setTimeout(watchIntervalMs, undefined, { signal: stopping, ref: false }).catch(() => undefined);
    if (stopping.aborted) return;
    const answered = await Promise.race([
      auth.database.db.execute(sql`select 1`).then(
        () => true,
        () => false,
      ),
      setTimeout(watchIntervalMs, false, { ref: false }),
    ]);
    if (answered) readiness.ready();
    else readiness.notReady("does not answer");
    if (!stopping.aborted) serving(answered);
  }
}
