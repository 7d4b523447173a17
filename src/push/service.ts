/** Composition root of the push service: makes its parts and connects them. */
import { type Clock, systemClock } from "../platform/base/clock.ts";
import { type Loop, pause, WakeUps } from "../platform/base/loop.ts";
import type { Cache } from "../platform/cache/cache.ts";
import type { CacheSettings } from "../platform/cache/cache-settings.ts";
import { openCache } from "../platform/cache/open-cache.ts";
import type { Database, OpenDatabase } from "../platform/database/database.ts";
import { openDatabase } from "../platform/database/open.ts";
import type { Broker, PreparedBroker } from "../platform/messaging/broker.ts";
import type { CloudEvent } from "../platform/messaging/cloud-event.ts";
import { startConsuming } from "../platform/messaging/consume-events.ts";
import { handleOnce } from "../platform/messaging/inbox.ts";
import { openServiceEvents } from "../platform/messaging/service-events.ts";
import { logEvents } from "../platform/messaging/subscribers.ts";
import type { Logger } from "../platform/observability/logger.ts";
import type { Metrics } from "../platform/observability/metrics.ts";
import type { BoundContract } from "../platform/openapi/bind.ts";
import { type ContractDocument, contractTexts, loadContract } from "../platform/openapi/document.ts";
import type { RpcService } from "../platform/rpc/service.ts";
import { createCallers } from "./callers/callers.ts";
import { pushMigrations } from "./database.ts";
import { createCurrentRates } from "./delivery/current-rates.ts";
import { startDelivery } from "./delivery/delivery.ts";
import { createProviderControl } from "./delivery/provider-control.ts";
import { createDevices, type Devices } from "./devices/devices.ts";
import { forgetUser, removeSignedOut } from "./devices/remove-devices.ts";
import { limitSaves, saveRateOfProcess, sharedSaveRate, verifySaveCommands } from "./devices/save-rate.ts";
import {
  authorizationRevoked,
  consumptions,
  deletionsConsumer,
  endedAuthorization,
  identityDeleted,
  PushEvents,
  pushEventStream,
} from "./events.ts";
import { createHistory } from "./history/history.ts";
import { pushHttp } from "./http.ts";
import { janitorKinds, startJanitor } from "./janitor.ts";
import { createCountAccepted } from "./notifications/acceptance-metrics.ts";
import { completeIfDone, completeNotification } from "./notifications/complete-notification.ts";
import { createCountAudience } from "./notifications/count-audience.ts";
import { createFollower } from "./notifications/follower.ts";
import { lockNotification } from "./notifications/lock-notification.ts";
import { confirmedNotifications, createNotifications } from "./notifications/notifications.ts";
import { createPayloadsOf } from "./notifications/payload-findings.ts";
import { startPlanners } from "./notifications/plan-notification.ts";
import { createRecipients } from "./notifications/recipients.ts";
import { createSending } from "./notifications/sending.ts";
import { createWatchProgress } from "./notifications/watch-progress.ts";
import { createProviders } from "./providers/create-providers.ts";
import type { Work } from "./queue/work.ts";
import { notificationRpc, pushRpc } from "./rpc.ts";
import { inbox, outbox, relayLeases } from "./schema.ts";
import type { PushSettings } from "./settings.ts";
import { observeStates } from "./state-gauges.ts";

/** `source` of this service's events. */
const eventSource = "/api/push-orchestration";

export interface PushService {
  readonly http: BoundContract;
  readonly document: ContractDocument;
  readonly rpc: readonly RpcService[];
  readonly database: OpenDatabase;
  /** The broker of the service; undefined if it has none. */
  readonly broker: PreparedBroker | undefined;
  /** Prepares what the first caller would wait for otherwise. */
  prepare(): Promise<void>;
  /** Starts planning, delivery, the janitor and the relay of events. */
  startWorkers(): void;
  /** What this process cannot do, though it is ready, and why. */
  warnings(): readonly { readonly name: string; readonly reason: string }[];
  /** Stops the workers; they put unfinished work back into the queue. Can be called again. */
  stopWorkers(): Promise<void>;
  /** Stops the workers and closes the database. @param graceMs milliseconds that workers have to stop */
  stop(graceMs: number): Promise<void>;
  /** Handles an event of another service. The same event may be delivered again. */
  handleEvent(event: CloudEvent): Promise<void>;
}

interface Dependencies extends Pick<Parts, "settings" | "logger" | "metrics"> {
  /** The log of events; undefined: there is none. */
  readonly eventLog: Logger | undefined;
  /** Whether every response is checked against the document; in tests and development. */
  readonly validateResponses: boolean;
  readonly clock?: Clock;
}

export async function createPushService(dependencies: Dependencies): Promise<PushService> {
  const { settings, logger, eventLog, metrics, validateResponses, clock = systemClock } = dependencies;
  const [database, document] = await Promise.all([
    openDatabase(settings.database, pushMigrations, metrics.database("push"), logger),
    loadContract(contractTexts("push-orchestration", "push")),
  ]);
  const { db, confirm } = database;
  const wakeUps = new WakeUps<Work>();
  const follower = createFollower({ db, wakeUps, clock, logger });
  const providers = createProviders(settings.providers, clock);
  const parts = { settings, database, db, wakeUps, clock, logger, metrics, providers };
  const callers = createCallers({ ...settings, clock, logger });
  const cache = settings.cache && (await openPushCache(settings.cache, logger, metrics));
  const devices = createLimitedDevices(parts, cache);
  const history = createHistory({ db });
  const { ttlSeconds, testUserIds } = settings;
  const { imageBaseUrl } = settings.providers;
  const accepting = { db, wakeUps, clock, ttlSeconds, accepted: createCountAccepted(metrics) };
  const notifications = confirmedNotifications(
    createNotifications({ ...accepting, follow: follower.follow, testUserIds, logger }),
    confirm,
  );
  const watchProgress = createWatchProgress({ notifications });
  const providerControl = createProviderControl({ db, wakeUps, providers: settings.providers.names });
  const sending = createSending({
    ...{ ...accepting, providers: settings.providers.names },
    imageBaseUrl,
    payloadsOf: createPayloadsOf({ providers, ttlSeconds, imageBaseUrl }),
    count: createCountAudience(db, settings.providers.names),
    rates: createCurrentRates(db, settings.delivery.maxPerSecond),
    recipients: createRecipients(db),
  });
  const http = pushHttp(
    { callers, devices, history, notifications, providers: providerControl, sending },
    { document, logger, observer: metrics.http, validateResponses },
  );
  const events = await openPushEvents(parts, eventLog);
  const { broker } = events;
  observeStates(db, settings.providers.names, metrics);

  async function handleEvent(event: CloudEvent): Promise<void> {
    const { id, type, subject, time } = event;
    if (type === identityDeleted.type) {
      // Without introspection a token of the deleted identity may have renewed a device since.
      const deletedAt = settings.introspection === undefined ? clock.now() : Date.parse(time);
      await handleOnce(db, inbox, id, (tx) => forgetUser(tx, subject, new Date(deletedAt)));
    } else if (type === authorizationRevoked.type) {
      const authorizationId = endedAuthorization(event);
      if (authorizationId !== undefined) await removeSignedOut(db, subject, authorizationId);
    }
  }

  const workers: Loop[] = [];
  let delivering: ReturnType<typeof startSending> | undefined;
  let stopping: Promise<unknown> | undefined;
  async function stopWorkers(): Promise<void> {
    stopping ??= Promise.all(workers.map((worker) => worker.stop()));
    await stopping;
  }

  return {
    http,
    document,
    rpc: [pushRpc({ callers, watchProgress }), notificationRpc({ callers, sending, document })],
    database,
    broker: broker && {
      async prepare() {
        await broker.prepareStream(pushEventStream);
        for (const { consumer } of consumptions) await broker.ensureConsumer(consumer);
      },
    },
    prepare: () => callers.prepare(),
    startWorkers() {
      if (stopping) return;
      delivering = startSending(parts);
      workers.push(
        ...startPlanners({ db, wakeUps, clock, logger, providers: settings.providers.names }),
        follower.start(),
        delivering,
        startPushJanitor(parts, broker),
        events.startRelay(),
        ...(broker ? startConsumptions(parts, broker, handleEvent) : []),
      );
    },
    warnings: () => delivering?.warnings() ?? [],
    stopWorkers,
    async stop(graceMs) {
      const timer = new AbortController();
      await Promise.race([stopWorkers(), pause(graceMs, timer.signal)]);
      timer.abort();
      await Promise.all([...providers.values()].map((provider) => provider.close()));
      callers.close();
      await Promise.all([broker?.close(), cache?.close()]);
      await database.close();
    },
    handleEvent,
  };
}

function openPushCache(settings: CacheSettings, logger: Logger, metrics: Metrics) {
  return openCache({
    settings,
    prefix: "gatepost:push:",
    name: "gatepost-push",
    whileAway: "each process counts calls by itself",
    rehearse: verifySaveCommands,
    logger,
    observer: metrics.cache("push"),
  });
}

/** What the parts of the service share. */
interface Parts {
  readonly settings: PushSettings;
  readonly database: OpenDatabase;
  readonly db: Database;
  readonly wakeUps: WakeUps<Work>;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly providers: ReturnType<typeof createProviders>;
}

/** The devices, with the limit of how often a user may save them. */
function createLimitedDevices({ settings, db, clock, providers }: Parts, cache: Cache | undefined): Devices {
  const { maxDevicesPerUser: maxPerUser, maxSavesPerMinute } = settings;
  const [defaultProvider] = settings.providers.names;
  const rateOfProcess = saveRateOfProcess(maxSavesPerMinute, clock);
  return limitSaves(
    createDevices({ db, clock, providers, defaultProvider, maxPerUser }),
    cache ? sharedSaveRate(cache, maxSavesPerMinute, rateOfProcess) : rateOfProcess,
  );
}

function openPushEvents({ settings, db, metrics, logger }: Parts, eventLog: Logger | undefined) {
  return openServiceEvents({
    name: "push",
    source: eventSource,
    ...{ db, logger },
    tables: { outbox, leases: relayLeases },
    broker: settings.broker,
    stream: pushEventStream,
    kinds: Object.values(PushEvents),
    log: eventLog && logEvents(eventLog),
    observe: (backlog) => metrics.outbox("push", backlog),
  });
}

function startSending({ settings, db, clock, ...parts }: Parts) {
  return startDelivery({
    ...parts,
    settings: { ...settings.delivery, imageBaseUrl: settings.providers.imageBaseUrl },
    completion: {
      ifDone: (id) => completeIfDone(db, id, clock),
      lock: lockNotification,
      inTransaction: (tx, id) => completeNotification(tx, id, new Date(clock.now())),
    },
  });
}

function startPushJanitor({ settings, db, logger, metrics }: Parts, broker: Broker | undefined): Loop {
  const { historyRetentionDays, outcomeRetentionDays, janitorIntervalSeconds: intervalSeconds } = settings;
  return startJanitor({
    ...{ db, historyRetentionDays, outcomeRetentionDays, logger, intervalSeconds },
    // The setting of auth decides for how long the broker keeps an event, so the broker is asked.
    ...(broker && {
      inboxRetentionDays: async () => (await broker.retentionDays(deletionsConsumer.stream)) + 1,
    }),
    observer: metrics.janitor("push", janitorKinds),
  });
}

/** Handles the events of the auth service that come from the broker. */
function startConsumptions(
  { metrics, logger }: Parts,
  broker: Broker,
  handle: (event: CloudEvent) => Promise<void>,
): Loop[] {
  metrics.broker("push", async () => {
    const unread = await Promise.all(consumptions.map(({ consumer }) => broker.unread(consumer)));
    return {
      events: unread.reduce((sum, { events }) => sum + events, 0),
      oldestSeconds: Math.max(...unread.map(({ oldestSeconds }) => oldestSeconds)),
    };
  });
  return consumptions.map((consumption) => startConsuming({ ...consumption, broker, handle, logger }));
}
