/**
 * The handler of one chunk's job: takes the chunk, sends it and stores the results. The results are stored in the
 * transaction that ends the job. If the process dies before that, the chunk's messages are sent again with the same
 * ids, and no other message is repeated.
 */
import { randomUUID } from "node:crypto";
import { isDatabaseUnavailable, sqlState } from "../../platform/base/database-errors.ts";
import { pause } from "../../platform/base/loop.ts";
import type { Database } from "../../platform/database/database.ts";
import { type Job, JobLostError, type Jobs } from "../../platform/messaging/jobs.ts";
import { type DeliveryJob, deliveryQueue, waitingForProvider } from "../database.ts";
import { imageUrl } from "../providers/image-url.ts";
import type { NotificationContent } from "../providers/provider.ts";
import {
  type DeliveryDevice,
  loadDevices,
  refuseChunk,
  type TakenChunk,
  takeChunk,
} from "./chunk-repository.ts";
import { markRemovalStopped } from "./dead-reports.ts";
import type { Random } from "./delivery-rules.ts";
import { nextTries } from "./next-try.ts";
import { wholeProvider } from "./provider-pauses.ts";
import { type SendDependencies, type Sending, sendChunk } from "./send-chunk.ts";
import type { ServiceStates } from "./service-states.ts";
import { type ChunkResult, type Settled, settleChunk } from "./settle-chunk.ts";

/** Completes a notification if it has nothing left to plan or send. */
export type CompleteIfDone = (db: Database, notificationId: string) => Promise<unknown>;

interface Dependencies extends SendDependencies {
  readonly db: Database;
  readonly jobs: Pick<Jobs, "complete" | "enqueue">;
  readonly maxDeadPercent: number;
  readonly imageBaseUrl: string | undefined;
  readonly completeIfDone: CompleteIfDone;
  readonly random: Random;
}

/** Handles a job of the provider's queue. */
type DeliverChunk = (job: Job<DeliveryJob>, stopping: AbortSignal) => Promise<void>;

/** Milliseconds between tries to store a chunk's results. */
const settleRetryMs = 1_000;
/** The longest wait of a worker whose provider is paused, in milliseconds: without it, it would requeue job after job. */
const maxPausedWaitMs = 1_000;

export function createDeliverChunk(dependencies: Dependencies): DeliverChunk {
  const { db, jobs, rateLimiter, states, rules, random, logger, metrics, imageBaseUrl } = dependencies;
  const provider = dependencies.provider.name;
  /** Reasons of failed messages that were logged: each is logged once for a notification. */
  const loggedReasons = new Set<string>();

  /** If this fails, the completion sweep does it later. */
  async function complete(notificationId: string): Promise<void> {
    await dependencies.completeIfDone(db, notificationId).catch((err: unknown) => {
      logger.warn({ err, notificationId }, "A notification could not be completed yet");
    });
  }

  /** Only shown to operators, so a failure is no reason to send the chunk again. */
  async function markStopped(notificationId: string): Promise<void> {
    await markRemovalStopped(db, notificationId).catch((err: unknown) => {
      logger.warn({ err, notificationId }, "A notification could not be marked whose dead devices are kept");
    });
  }

  async function refuse(job: Job<DeliveryJob>, stopping: AbortSignal): Promise<void> {
    const queue = deliveryQueue(provider);
    const refused = await db.transaction(async (tx) => {
      const nextJobId = randomUUID();
      const chunk = await refuseChunk(tx, provider, job, nextJobId);
      if (chunk?.requeueInMs !== undefined) {
        const data: DeliveryJob = { ...job.data, ...waitingForProvider };
        await jobs.enqueue(tx, queue, [
          { id: nextJobId, data, priority: job.priority, startAfterSeconds: chunk.requeueInMs / 1000 },
        ]);
      }
      await jobs.complete(tx, queue, job);
      return chunk;
    });
    if (refused?.dropped !== undefined) {
      metrics.messages.inc({ provider, outcome: "dropped" }, refused.dropped);
      await complete(refused.notificationId);
    }
    const { requeueInMs = 0 } = refused ?? {};
    if (requeueInMs === 0) return;
    metrics.paused(provider, true);
    await pause(Math.min(requeueInMs, maxPausedWaitMs), stopping);
  }

  function settle(job: Job<DeliveryJob>, chunk: TakenChunk, result: ChunkResult): Promise<Settled> {
    const { maxDeadPercent } = dependencies;
    return settleChunk({ db, jobs, provider, limits: { ...rules, maxDeadPercent } }, job, chunk, result);
  }

  /** What was sent is stored nowhere yet, so the process waits for an unavailable database instead of sending again. */
  async function settleWithRetries(
    job: Job<DeliveryJob>,
    chunk: TakenChunk,
    result: ChunkResult,
  ): Promise<Settled> {
    const until = performance.now() + rules.settleTimeoutMs;
    for (;;) {
      try {
        return await settle(job, chunk, result);
      } catch (err) {
        if (!isTemporary(err) || performance.now() > until) throw err;
        logger.warn({ err, chunkId: chunk.id }, "The results of a chunk could not be stored yet");
        await pause(settleRetryMs);
      }
    }
  }

  function reportOutcome(chunk: TakenChunk, { tally }: Sending, result: ChunkResult, settled: Settled): void {
    const { counts } = tally;
    const dropped = result.dropped + settled.dropped;
    for (const [outcome, count] of Object.entries({ ...counts, dropped })) {
      if (count > 0) metrics.messages.inc({ provider, outcome }, count);
    }
    const notificationId = chunk.notification.id;
    for (const reason of tally.failures.keys()) {
      const isAlarm = tally.alarms.has(reason);
      const key = `${notificationId} ${reason}`;
      if (loggedReasons.has(key)) continue;
      if (loggedReasons.size >= 1000) loggedReasons.clear();
      loggedReasons.add(key);
      const fields = { notificationId, provider, reason };
      if (isAlarm)
        logger.error(fields, "The push provider lacks something for these messages: see the reason");
      else logger.warn(fields, "The push provider rejects messages of a notification");
    }
    if (settled.stoppedAt) {
      metrics.removalStops.inc({ provider });
      logger.error(
        { notificationId, provider, ...settled.stoppedAt },
        "A provider reports too many users' devices dead, so no more tokens are removed: " +
          "check its project and credentials, then confirm or discard the removals",
      );
    }
    for (const count of tally.alarms.values()) metrics.alarms.inc({ provider }, count);
    if (settled.dead === undefined) return;
    metrics.givenUp.inc({ provider });
    logger.error(
      { notificationId, provider, ...settled.dead },
      "Devices of a chunk were given up and are now a dead letter",
    );
  }

  return async (job, stopping) => {
    const began = performance.now();
    const chunk = await takeChunk(db, provider, job);
    if (!chunk) return refuse(job, stopping);
    const [found] = await Promise.all([loadDevices(db, provider, chunk.id), states.load()]);
    const { serviceOf } = dependencies.provider;
    const devices = found.map((device) => ({
      ...device,
      service: serviceOf?.call(dependencies.provider, device.token) ?? wholeProvider,
    }));
    const content = contentOf(chunk, imageBaseUrl);
    const sending = await sendChunk(dependencies, chunk, content, devices, stopping);
    if (sending.stop === "lost") throw new JobLostError(`another worker has taken chunk ${chunk.id}`);
    const { tally } = sending;
    const serviceAt = (index: number) => devices[index]?.service ?? wholeProvider;
    const left = tally.conclude({
      works: (index) => states.works(serviceAt(index)),
      isForeign: (index) => states.refusesUsers(serviceAt(index)),
    });
    const result = {
      sent: tally.counts.sent,
      failed: tally.counts.failed + tally.counts.dead,
      dropped: chunk.devices - devices.length,
      dead: tally.dead.length,
      failures: new Map([...tally.failures, ...tally.deaths]),
      // A provider that refuses our credentials or project is not reliable about tokens either.
      answers: devices.some(({ service }) => states.refuses(service)) ? undefined : tally,
      tries: nextTries(
        chunk,
        left,
        {
          closed: (ids) => closedServices(ids, devices, states),
          afterMs: tally.afterMs,
          reason: tally.reason,
          isComplete: sending.stop === undefined,
        },
        rules,
        random,
      ),
    };
    const settled = await settleWithRetries(job, chunk, result);
    metrics.chunkEnded(provider, (performance.now() - began) / 1000);
    reportOutcome(chunk, sending, result, settled);
    if (settled.isHeld) await markStopped(chunk.notification.id);
    if (settled.isOver) await complete(chunk.notification.id);
    const wentWell =
      sending.stop === undefined &&
      (serviceOf !== undefined || tally.counts.retry <= tally.finalOutcomes * rules.toleratedErrors);
    if (wentWell && chunk.share < 1) await rateLimiter.raiseRate().catch(() => undefined);
  };
}

/** The services of the devices, if none of them can be sent to at the moment; else empty. */
function closedServices(
  ids: readonly number[],
  devices: readonly DeliveryDevice[],
  states: ServiceStates,
): readonly string[] {
  const wanted = new Set(ids);
  const services = new Set(devices.filter(({ id }) => wanted.has(id)).map(({ service }) => service));
  return services.values().every((service) => states.state(service) !== "open") ? [...services] : [];
}

function contentOf({ notification }: TakenChunk, imageBaseUrl: string | undefined): NotificationContent {
  const { id, title, message, image, expiresAt } = notification;
  return {
    notificationId: id,
    title,
    message,
    imageUrl: imageUrl(imageBaseUrl, image ?? undefined),
    expiresAt,
  };
}

/** The database is unavailable, or a transaction met a serialization failure or a deadlock. */
function isTemporary(thrown: unknown): boolean {
  return isDatabaseUnavailable(thrown) || ["40001", "40P01"].includes(sqlState(thrown) ?? "");
}
