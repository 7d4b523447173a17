/** Composition root of the push service: makes its parts and connects them. */
import type { Hono } from "hono";
import { type Clock, systemClock } from "../platform/base/clock.ts";
import { unavailable } from "../platform/base/errors.ts";
import { type Loop, pause } from "../platform/base/loop.ts";
import { openCache } from "../platform/cache/open-cache.ts";
import type { OpenDatabase } from "../platform/database/database.ts";
import { openDatabase } from "../platform/database/open.ts";
import type { PreparedBroker } from "../platform/messaging/broker.ts";
import type { CloudEvent } from "../platform/messaging/cloud-event.ts";
import { startConsuming } from "../platform/messaging/consume-events.ts";
import { actOnce } from "../platform/messaging/inbox.ts";
import { createJobs, type Jobs } from "../platform/messaging/jobs.ts";
import { openBroker } from "../platform/messaging/open-broker.ts";
import { outboxBacklog } from "../platform/messaging/outbox.ts";
import { OutboxStart } from "../platform/messaging/outbox-start.ts";
import { publishEvents } from "../platform/messaging/publish-events.ts";
import { logEvents, type Subscriber, startRelay } from "../platform/messaging/relay.ts";
import type { Logger } from "../platform/observability/logger.ts";
import type { Metrics } from "../platform/observability/metrics.ts";
import { type ContractDocument, contractTexts, loadContract } from "../platform/openapi/document.ts";
import type { RpcService } from "../platform/rpc/service.ts";
import { createCallers } from "./callers/callers.ts";
import { confirmedNotifications } from "./confirmed.ts";
import {
  followQueue,
  planQueue,
  planRestQueue,
  pushJobTables,
  pushMigrations,
  replayQueue,
} from "./database.ts";
import { startDelivery } from "./delivery/delivery.ts";
import { createProviderControl } from "./delivery/provider-control.ts";
import { createDevices } from "./devices/devices.ts";
import { forgetUser } from "./devices/forget-user.ts";
import { removeDeadDevices } from "./devices/remove-dead.ts";
import { limitSaves, rehearseSaving, saveRateOfProcess, sharedSaveRate } from "./devices/save-rate.ts";
import { deletionsConsumer, identityDeleted, PushEvents, pushEventStream } from "./events.ts";
import { createHistory } from "./history/history.ts";
import { pushHttp } from "./http.ts";
import { janitorKinds, startJanitor } from "./janitor.ts";
import { completeIfDone } from "./notifications/complete-notification.ts";
import { startCompletionSweep } from "./notifications/completion-sweep.ts";
import { createDeadLetterHandler } from "./notifications/failed-jobs.ts";
import { createFollower } from "./notifications/follow-chunks.ts";
import { createNotifications } from "./notifications/notifications.ts";
import { createPlanner } from "./notifications/plan-notification.ts";
import { createReplayer } from "./notifications/replay-dead-letters.ts";
import { createWatchProgress } from "./notifications/watch-progress.ts";
import { createProviders } from "./providers/create-providers.ts";
import { pushRpc } from "./rpc.ts";
import { brokerStreams, inbox, keptEvents, outbox, relayLeases } from "./schema.ts";
import type { PushSettings } from "./settings.ts";

/** `source` of this service's events. */
const eventSource = "/api/push-orchestration";

export interface PushService {
  readonly http: Hono;
  readonly document: ContractDocument;
  readonly rpc: readonly RpcService[];
  readonly database: OpenDatabase;
  /** The broker of events; undefined if it has none. */
  readonly broker: PreparedBroker | undefined;
  /** Prepares the job queues. Throws if the database is unavailable. */
  prepare(): Promise<void>;
  /** Starts planning, delivery, the janitor and the relay of events. */
  startWorkers(): void;
  /** Stops the workers; they put unfinished work back into the queues. Can be called again. */
  stopWorkers(): Promise<void>;
  /** Stops the workers and closes the database. @param graceMs milliseconds that workers have to stop */
  stop(graceMs: number): Promise<void>;
  /** Handles an event of another service. The same event may be delivered again. */
  consume(event: CloudEvent): Promise<void>;
}

interface Dependencies {
  readonly settings: PushSettings;
  readonly logger: Logger;
  /** Where events are written; undefined: nowhere. */
  readonly eventLog: Logger | undefined;
  readonly metrics: Metrics;
  /** Check every response against the document; in tests and development. */
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
  const queues = createJobs({ database, tables: pushJobTables, logger });
  let isPrepared = false;
  const jobs: Jobs = {
    ...queues,
    enqueue(...work) {
      if (!isPrepared) throw unavailable("The database", new Error("the job queues are not ready yet"));
      return queues.enqueue(...work);
    },
  };
  const providers = createProviders(settings.providers, clock);
  const [defaultProvider] = settings.providers.names;
  const callers = createCallers({ ...settings, clock, logger });
  const { maxDevicesPerUser: maxPerUser, maxSavesPerMinute } = settings;
  const cache =
    settings.cache &&
    (await openCache({
      settings: settings.cache,
      prefix: "gatepost:push:",
      name: "gatepost-push",
      whileAway: "each process counts calls by itself",
      rehearse: rehearseSaving,
      logger,
      observer: metrics.cache("push"),
    }));
  const rateOfProcess = saveRateOfProcess(maxSavesPerMinute, clock);
  const devices = limitSaves(
    createDevices({ db, clock, providers, defaultProvider, maxPerUser }),
    cache ? sharedSaveRate(cache, maxSavesPerMinute, rateOfProcess) : rateOfProcess,
  );
  const history = createHistory({ db });
  const { ttlSeconds, testUserIds } = settings;
  const notifications = confirmedNotifications(
    createNotifications({ db, jobs, clock, ttlSeconds, testUserIds, logger }),
    confirm,
  );
  const watchProgress = createWatchProgress({ notifications });
  const providerControl = createProviderControl({ db, jobs, providers: settings.providers.names });
  const http = pushHttp(
    { callers, devices, history, notifications, providers: providerControl },
    { document, logger, observer: metrics.http, validateResponses },
  );

  const broker = settings.broker && (await openBroker(settings.broker, "push", logger));
  const publisher = broker && publishEvents(broker, pushEventStream, Object.values(PushEvents));
  const subscribers: readonly Subscriber[] = [
    ...(publisher ? [publisher] : []),
    ...(eventLog ? [logEvents(eventLog)] : []),
  ];
  async function consume({ id, type, subject, time }: CloudEvent): Promise<void> {
    if (type !== identityDeleted.type) return;
    // Without introspection a token of the deleted identity may have renewed a device since.
    const deletedAt = settings.security === undefined ? clock.now() : Date.parse(time);
    await actOnce(db, inbox, id, (tx) => forgetUser(tx, subject, new Date(deletedAt)));
  }

  const start = new OutboxStart();
  const workers: Loop[] = [];
  let stopping: Promise<unknown> | undefined;
  async function stopWorkers(): Promise<void> {
    stopping ??= Promise.all(workers.map((worker) => worker.stop()));
    await stopping;
  }

  return {
    http,
    document,
    rpc: [pushRpc({ callers, watchProgress })],
    database,
    broker: broker && {
      async prepare() {
        await broker.prepareStream(pushEventStream);
        await broker.ensureConsumer(deletionsConsumer);
      },
    },
    async prepare() {
      // Before the process is ready: the first caller would wait for it otherwise.
      await Promise.all([jobs.start(), callers.prepare()]);
      isPrepared = true;
    },
    startWorkers() {
      if (stopping) return;
      const { historyRetentionDays, janitorIntervalSeconds: intervalSeconds } = settings;
      const { replayHours } = settings.broker ?? { replayHours: 0 };
      const planner = createPlanner({ db, jobs, clock, providers: settings.providers.names });
      workers.push(
        jobs.work({ queue: planQueue, handle: planner.handle }),
        jobs.work({ queue: planRestQueue, handle: planner.handle }),
        jobs.work({ queue: followQueue, handle: createFollower({ db, jobs }) }),
        jobs.work({ queue: replayQueue, handle: createReplayer({ db, jobs, clock }) }),
        startDelivery({
          db,
          reads: database.reads,
          jobs,
          providers,
          settings: { ...settings.delivery, imageBaseUrl: settings.providers.imageBaseUrl },
          logger,
          metrics,
          completeIfDone: (tx, notificationId) => completeIfDone(tx, notificationId, clock),
          removeDeadDevices,
          handleDeadLetter: createDeadLetterHandler({ db, jobs, clock, logger }).handle,
        }),
        startCompletionSweep({ db, jobs, clock, logger }),
        startJanitor({
          db,
          historyRetentionDays,
          replayHours,
          // A day longer than the broker keeps an event that was delivered again, at the end of its own retention.
          ...(settings.broker && { inboxRetentionDays: 2 * settings.broker.retentionDays + 1 }),
          logger,
          intervalSeconds,
          observer: metrics.janitor("push", janitorKinds),
        }),
        startRelay({
          db,
          outbox,
          leases: relayLeases,
          source: eventSource,
          subscribers,
          logger,
          start,
          delivered: metrics.outbox("push", () => outboxBacklog(db, outbox, subscribers, start.position)),
          ...(publisher &&
            replayHours > 0 && {
              replay: {
                ...{ kept: keptEvents, streams: brokerStreams, stream: pushEventStream.name },
                hours: replayHours,
                identify: publisher.identify,
              },
            }),
          // The log is one, and keeps the order of all events.
          inParts: broker !== undefined,
          isOnlyProcess: settings.database.kind === "embedded",
        }),
      );
      if (broker) {
        const { message: schema } = identityDeleted;
        metrics.broker("push", () => broker.unread(deletionsConsumer));
        workers.push(startConsuming({ broker, consumer: deletionsConsumer, schema, take: consume, logger }));
      }
    },
    stopWorkers,
    async stop(graceMs) {
      const timer = new AbortController();
      await Promise.race([stopWorkers(), pause(graceMs, timer.signal)]);
      timer.abort();
      await jobs.stop();
      await Promise.all([...providers.values()].map((provider) => provider.close()));
      callers.close();
      await Promise.all([broker?.close(), cache?.close()]);
      await database.close();
    },
    consume,
  };
}
