/** Creates the services that the settings name, and connects them. A service is loaded only if it runs. */
import type { AuthSettings } from "./auth/settings.ts";
import type { OtpVerifier } from "./development/otp-verifier/service.ts";
import type { Clock } from "./platform/base/clock.ts";
import type { OpenDatabase } from "./platform/database/database.ts";
import { createCallerAddress } from "./platform/door/caller-address.ts";
import type { PreparedBroker } from "./platform/messaging/broker.ts";
import { type Subscriber, subscriberWithTimeout } from "./platform/messaging/subscribers.ts";
import type { Logger } from "./platform/observability/logger.ts";
import type { Metrics } from "./platform/observability/metrics.ts";
import type { BoundContract } from "./platform/openapi/bind.ts";
import type { ContractDocument } from "./platform/openapi/document.ts";
import type { Unready } from "./platform/process/lifecycle.ts";
import type { RpcService } from "./platform/rpc/service.ts";
import type { ServerSettings } from "./platform/settings/server.ts";
import type { PushService } from "./push/service.ts";
import type { PushSettings } from "./push/settings.ts";
import type { ServiceName, Settings } from "./services.ts";

/** An API and its document. */
interface ServedApi {
  readonly http: BoundContract;
  readonly document: ContractDocument;
}

/** A service, as the process runs it. */
export interface RunnableService extends ServedApi {
  readonly name: ServiceName;
  readonly rpc: readonly RpcService[];
  readonly database: OpenDatabase;
  readonly broker: PreparedBroker | undefined;
  /** Does the preparation that needs the schema. */
  prepare(): Promise<void>;
  startWorkers(): void;
  /** What it cannot do in this process, though it is ready. */
  warnings?(): readonly Unready[];
  /** Stops the workers when the process begins to drain, so that other processes can do their work. Never throws. */
  stopWorkers?(): void;
  stop(graceMs: number): Promise<void>;
}

interface ProcessDependencies {
  readonly logger: Logger;
  /** The log of events; undefined: events are written to the ordinary log, unless a broker takes them. */
  readonly eventLog: Logger | undefined;
  readonly metrics: Metrics;
  readonly clock: Clock;
}

interface Composition {
  /** The services, which stop in the reverse order. */
  readonly services: readonly RunnableService[];
  /** The APIs that development mode has beside the services. */
  readonly builtIn: readonly ServedApi[];
}

export async function composeServices(
  { server, auth, push }: Settings,
  surroundings: ProcessDependencies,
): Promise<Composition> {
  const common = { ...surroundings, validateResponses: server.environment === "development" };
  const callerAddress = createCallerAddress(server.trustedProxies);
  const { logger } = surroundings;
  const eventLogOf = ({ broker }: AuthSettings | PushSettings) =>
    surroundings.eventLog ?? (broker ? undefined : logger);
  // If both services have a broker, the events go through it.
  const isDirect = push && !(auth?.broker && push.broker);
  const subscribers: Subscriber[] = isDirect
    ? [subscriberWithTimeout(async (event) => (await makingPush)?.handleEvent(event))]
    : [];
  const makingPush =
    push &&
    import("./push/service.ts").then(({ createPushService }) =>
      createPushService({ ...common, settings: push, eventLog: eventLogOf(push) }),
    );
  const makingVerifier = auth?.otp.builtIn ? builtInVerifier(server, auth, surroundings) : undefined;
  const [authService, pushService, verifier] = await Promise.all([
    auth &&
      import("./auth/service.ts").then(({ createAuthService }) =>
        createAuthService({
          ...common,
          settings: auth,
          workers: server.workers,
          subscribers,
          eventLog: eventLogOf(auth),
          callerAddress,
          showMessage: async ({ phone, code }) =>
            (await makingVerifier)?.show({ phone, code, sentAt: new Date() }),
        }),
      ),
    makingPush,
    makingVerifier,
  ]);
  const services: RunnableService[] = [];
  // The auth service stops first, so that the push service receives all of its events.
  if (pushService) services.push(runnablePush(pushService, logger));
  if (authService) services.push({ name: "auth", ...authService });
  return { services, builtIn: verifier ? [verifier] : [] };
}

function runnablePush(service: PushService, logger: Logger): RunnableService {
  return {
    name: "push",
    ...service,
    stopWorkers() {
      service
        .stopWorkers()
        .catch((err) => logger.error({ err }, "The workers of the push service failed to stop"));
    },
  };
}

async function builtInVerifier(
  server: ServerSettings,
  { otp }: AuthSettings,
  { logger, metrics, clock }: Omit<ProcessDependencies, "eventLog">,
): Promise<OtpVerifier> {
  const [{ createOtpVerifier }, { developmentSecrets }] = await Promise.all([
    import("./development/otp-verifier/service.ts"),
    import("./development/secrets.ts"),
  ]);
  return createOtpVerifier({
    issuer: otp.issuer,
    privateKey: developmentSecrets(server.dataDir).otp.privateKey,
    logger,
    observer: metrics.http,
    clock,
    validateResponses: true,
  });
}
