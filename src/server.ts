/**
 * Composition root of the process: its services on their ports. No side effects but through what it is
 * given, so that a test runs the same server as `npm start`.
 */
import { Hono } from "hono";
import { createAuthService } from "./auth/service.ts";
import type { AuthSettings } from "./auth/settings.ts";
import { builtInVerifierPath } from "./auth/settings-table.ts";
import { createOtpVerifier } from "./otp-verifier/service.ts";
import { createApiReference } from "./platform/api-reference.ts";
import { type Clock, systemClock } from "./platform/clock.ts";
import { createConnectHandler } from "./platform/connect-handler.ts";
import { notFound } from "./platform/contract/bind.ts";
import { httpCors } from "./platform/cors.ts";
import { developmentSecrets } from "./platform/development-secrets.ts";
import { createGrpcServer } from "./platform/grpc-server.ts";
import { createHttpServer } from "./platform/http-server.ts";
import { createLifecycle, type Lifecycle } from "./platform/lifecycle.ts";
import { createManagementServer } from "./platform/management.ts";
import { becomeReady, keepReady } from "./platform/readiness.ts";
import { RememberingRouter } from "./platform/remembering-router.ts";
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

  const app = new Hono({ router: new RememberingRouter() });
  if (server.corsOrigins.length > 0) app.use(httpCors(server.corsOrigins));
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
      basePath: builtInVerifierPath,
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

  const { database } = auth;
  const stopping = draining.signal;
  const ready = becomeReady({
    readiness,
    logger,
    stopping,
    migrate: isDevelopment ? () => database.migrate() : undefined,
    isMigrated: () => database.isMigrated(),
    prepare: () => auth.prepare(),
  }).then(() => {
    if (stopping.aborted) return;
    grpc.setServing(true);
    auth.startWorkers();
    void keepReady({
      readiness,
      stopping,
      answers: () => database.answers(),
      looked: (answered) => grpc.setServing(answered),
    });
  });
  return { lifecycle, ports, database: database.description, ready };
}
