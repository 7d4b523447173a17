/**
 * The services that the settings ask for, made and joined: where both run in one process, the push service is
 * given the auth service's events. Each is loaded only if it runs.
 */
import { setTimeout } from "node:timers/promises";
import type { Hono } from "hono";
import type { AuthService, createAuthService } from "./auth/service.ts";
import type { AuthSettings } from "./auth/settings.ts";
import type { Clock } from "./platform/base/clock.ts";
import type { OpenDatabase } from "./platform/database/database.ts";
import { DirectoryInUseError } from "./platform/database/directory-lock.ts";
import { type Deliver, limited } from "./platform/messaging/relay.ts";
import type { Logger } from "./platform/observability/logger.ts";
import type { Metrics } from "./platform/observability/metrics.ts";
import type { ContractDocument } from "./platform/openapi/document.ts";
import type { RpcService } from "./platform/rpc/service.ts";
import type { ServerSettings } from "./platform/settings/server.ts";
import type { createPushService, PushService } from "./push/service.ts";
import type { ServiceName, Settings } from "./services.ts";

/** An API, and where it is served if that is not where its document says. */
interface ServedApi {
  readonly http: Hono;
  readonly document: ContractDocument;
  readonly basePath?: string;
}

/** A service as the process sees it. */
export interface RunnableService extends ServedApi {
  readonly name: ServiceName;
  readonly rpc: readonly RpcService[];
  readonly database: OpenDatabase;
  /** What is left to do once the schema is there. */
  prepare(): Promise<void>;
  startWorkers(): void;
  /** Where work must be handed back as soon as the process is to end. Never rejects. */
  stopWorkers?(): void;
  stop(graceMs: number): Promise<void>;
}

interface Surroundings {
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly clock: Clock;
}

interface Composition {
  /** They stop in the reverse order. */
  readonly services: readonly RunnableService[];
  /** What is built in beside them in development mode. */
  readonly built: readonly ServedApi[];
}

export async function composeServices(
  { server, auth, push }: Settings,
  surroundings: Surroundings,
): Promise<Composition> {
  const common = { ...surroundings, validateResponses: server.environment === "development" };
  const subscribers: Deliver[] = push ? [limited(async (event) => (await makingPush)?.consume(event))] : [];
  const makingAuth = auth && makeAuth({ settings: auth, subscribers, ...common });
  const makingPush = push && makePush({ settings: push, ...common }, makingAuth);
  const [authService, pushService, verifier] = await Promise.all([
    makingAuth,
    makingPush,
    auth?.otp.builtIn ? builtInVerifier(server, auth, surroundings) : undefined,
  ]);
  const services: RunnableService[] = [];
  // The auth service stops first: until then its events are taken.
  if (pushService) services.push(runnablePush(pushService, surroundings.logger));
  if (authService) services.push({ name: "auth", ...authService });
  return { services, built: verifier ? [verifier] : [] };
}

async function makeAuth(dependencies: Parameters<typeof createAuthService>[0]): Promise<AuthService> {
  const service = await import("./auth/service.ts");
  return service.createAuthService(dependencies);
}

/** Milliseconds in which another process that is about to end lets go of its embedded database. */
const releaseMs = 3_000;

/**
 * Of two processes that start at once on the same directories, each could get one. Then it is the auth service's
 * that decides: who has it waits for the other one to end.
 */
async function makePush(
  dependencies: Parameters<typeof createPushService>[0],
  auth: Promise<AuthService> | undefined,
): Promise<PushService> {
  const service = await import("./push/service.ts");
  const make = () => service.createPushService(dependencies);
  for (let until = Number.POSITIVE_INFINITY; ; ) {
    try {
      return await make();
    } catch (error) {
      if (!auth || !(error instanceof DirectoryInUseError) || performance.now() > until) throw error;
    }
    await auth;
    until = Math.min(until, performance.now() + releaseMs);
    await setTimeout(100);
  }
}

function runnablePush(service: PushService, logger: Logger): RunnableService {
  return {
    name: "push",
    ...service,
    stopWorkers() {
      service.stopWorkers().catch((err) => logger.error({ err }, "the workers of push failed to stop"));
    },
  };
}

async function builtInVerifier(
  server: ServerSettings,
  { otp }: AuthSettings,
  { logger, metrics, clock }: Surroundings,
): Promise<ServedApi> {
  const [{ createOtpVerifier }, { developmentSecrets }, { builtInVerifierPath: basePath }] =
    await Promise.all([
      import("./development/otp-verifier/service.ts"),
      import("./development/secrets.ts"),
      import("./auth/settings-table.ts"),
    ]);
  const verifier = await createOtpVerifier({
    issuer: otp.issuer,
    privateKey: developmentSecrets(server.dataDir).otp.privateKey,
    logger,
    observer: metrics.http,
    clock,
    validateResponses: true,
    basePath,
  });
  return { ...verifier, basePath };
}
