/**
 * The handler of one chunk's job: takes the chunk, sends it and stores the results, the last of them in the transaction
 * that ends the job. Whoever answers late keeps no other chunk waiting: the next one begins when the messages of this
 * one are in flight, and what is answered is stored meanwhile. If the process dies, the messages without a stored
 * result are sent again with the same ids, and no other message is repeated.
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
  type ChunkCounts,
  type DeliveryDevice,
  loadDevices,
  refuseChunk,
  type TakenChunk,
  takeChunk,
} from "./chunk-repository.ts";
import { markRemovalStopped } from "./dead-reports.ts";
import type { Random } from "./delivery-rules.ts";
import { nextTries } from "./next-try.ts";
import type { Outcomes } from "./outcomes.ts";
import { wholeProvider } from "./provider-pauses.ts";
import { type SendDependencies, type Sending, startSending } from "./send-chunk.ts";
import { type Removals, type Settled, settleChunk, storeAnswers } from "./settle-chunk.ts";
import type { Tally } from "./tally.ts";

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
type DeliverChunk = (job: Job<DeliveryJob>, stopping: AbortSignal, next: () => void) => Promise<void>;

/** A chunk that this worker sends, and what is stored of it. */
interface Attempt {
  readonly job: Job<DeliveryJob>;
  readonly chunk: TakenChunk;
  counts: ChunkCounts;
}

/** Milliseconds between tries to store a chunk's results. */
const settleRetryMs = 1_000;
/** The longest wait of a worker whose provider is paused, in milliseconds: without it, it would requeue job after job. */
const maxPausedWaitMs = 1_000;

export function createDeliverChunk(dependencies: Dependencies): DeliverChunk {
  const { db, jobs, rateLimiter, states, rules, random, logger, metrics, imageBaseUrl } = dependencies;
  const { maxDeadPercent } = dependencies;
  const provider = dependencies.provider.name;
  const storage = { db, jobs, provider, limits: { ...rules, maxDeadPercent } };
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
      countDropped(refused.dropped);
      await complete(refused.notificationId);
    }
    const { requeueInMs = 0 } = refused ?? {};
    if (requeueInMs === 0) return;
    metrics.paused(provider, true);
    await pause(Math.min(requeueInMs, maxPausedWaitMs), stopping);
  }

  /** What was sent is stored nowhere yet, so the process waits for an unavailable database instead of sending again. */
  async function withRetries<T>({ id: chunkId }: TakenChunk, store: () => Promise<T>): Promise<T> {
    const until = performance.now() + rules.settleTimeoutMs;
    for (;;) {
      try {
        return await store();
      } catch (err) {
        if (!isTemporary(err) || performance.now() > until) throw err;
        logger.warn({ err, chunkId }, "The results of a chunk could not be stored yet");
        await pause(settleRetryMs);
      }
    }
  }

  /** A provider that refuses our credentials or project is not reliable about tokens either. */
  const isBelieved = ({ services }: Tally) => !services.values().some((service) => states.refuses(service));

  /** Stores what is answered while other messages of the chunk have no answer yet. */
  async function storeMeanwhile(attempt: Attempt, sending: Sending): Promise<void> {
    const { tally, ended, halt } = sending;
    const { job, chunk } = attempt;
    const over = new AbortController();
    const end = () => over.abort();
    void ended.then(end, end);
    try {
      for (let waitMs = rules.storeAfterMs; ; waitMs = Math.min(2 * waitMs, rules.storeEveryMs)) {
        await pause(waitMs, over.signal);
        if (over.signal.aborted) return;
        const untried = sending.takeUntried();
        if (!tally.hasFresh && untried.length === 0) continue;
        const { open } = tally;
        const outcomes = tally.take();
        attempt.counts = outcomes.addedTo(attempt.counts);
        const answers = isBelieved(tally) ? outcomes : undefined;
        const rest = { devices: untried, jobId: randomUUID() };
        const result = { counts: attempt.counts, answers, open, rest };
        const removals = await withRetries(chunk, () => storeAnswers(storage, job, chunk, result));
        await report(chunk, outcomes, removals);
      }
    } catch (err) {
      // The chunk has another worker by now, or the results of a minute could not be stored.
      halt("lost");
      await ended;
      throw err;
    }
  }

  /** Stores the last results, and what becomes of the devices that are left. */
  async function settle(attempt: Attempt, tally: Tally): Promise<Settled> {
    const { job, chunk } = attempt;
    const left = tally.conclude({
      works: (service) => states.works(service),
      isForeign: (service) => states.refusesUsers(service),
    });
    const state = (service: string) => states.state(service);
    const tries = nextTries(chunk, left, { state, reason: tally.reason }, rules, random);
    const outcomes = tally.take();
    const counts = outcomes.addedTo(attempt.counts);
    const result = { counts, answers: isBelieved(tally) ? outcomes : undefined, tries };
    const settled = await withRetries(chunk, () => settleChunk(storage, job, chunk, result));
    await report(chunk, outcomes, settled);
    return settled;
  }

  function countDropped(devices: number): void {
    if (devices > 0) metrics.messages.inc({ provider, outcome: "dropped" }, devices);
  }

  /** Tells operators what has been stored. */
  async function report(
    { notification: { id: notificationId } }: TakenChunk,
    { counts, failures, alarms }: Outcomes,
    { stoppedAt, isHeld }: Removals,
  ): Promise<void> {
    for (const [outcome, count] of Object.entries(counts)) {
      if (count > 0) metrics.messages.inc({ provider, outcome }, count);
    }
    for (const count of alarms.values()) metrics.alarms.inc({ provider }, count);
    for (const reason of failures.keys()) logFailure(notificationId, reason, alarms.has(reason));
    if (stoppedAt) {
      metrics.removalStops.inc({ provider });
      logger.error(
        { notificationId, provider, ...stoppedAt },
        "A provider reports too many users' devices dead, so no more tokens are removed: " +
          "check its project and credentials, then confirm or discard the removals",
      );
    }
    if (isHeld) await markStopped(notificationId);
  }

  function logFailure(notificationId: string, reason: string, isAlarm: boolean): void {
    const key = `${notificationId} ${reason}`;
    if (loggedReasons.has(key)) return;
    if (loggedReasons.size >= 1000) loggedReasons.clear();
    loggedReasons.add(key);
    const fields = { notificationId, provider, reason };
    if (isAlarm) logger.error(fields, "The push provider lacks something for these messages: see the reason");
    else logger.warn(fields, "The push provider rejects messages of a notification");
  }

  async function load(chunk: TakenChunk): Promise<DeliveryDevice[]> {
    const [found] = await Promise.all([loadDevices(db, provider, chunk.id), states.load()]);
    const { serviceOf } = dependencies.provider;
    return found.map((device) => ({
      ...device,
      service: serviceOf?.call(dependencies.provider, device.token) ?? wholeProvider,
    }));
  }

  return async (job, stopping, next) => {
    const began = performance.now();
    const chunk = await takeChunk(db, provider, job);
    if (!chunk) return refuse(job, stopping);
    const devices = await load(chunk);
    const gone = chunk.devices - devices.length;
    const attempt: Attempt = {
      job,
      chunk,
      counts: { ...chunk.counts, dropped: chunk.counts.dropped + gone },
    };
    const content = contentOf(chunk, imageBaseUrl);
    const sending = startSending(dependencies, chunk, content, devices, { stopping, next });
    await storeMeanwhile(attempt, sending);
    const stop = await sending.ended;
    if (stop === "lost") throw new JobLostError(`another worker has taken chunk ${chunk.id}`);
    const { isOver, dead, dropped } = await settle(attempt, sending.tally);
    countDropped(gone + dropped);
    metrics.chunkEnded(provider, (performance.now() - began) / 1000);
    if (dead) {
      metrics.givenUp.inc({ provider });
      const fields = { notificationId: chunk.notification.id, provider, ...dead };
      logger.error(fields, "Devices of a chunk were given up and are now a dead letter");
    }
    if (isOver) await complete(chunk.notification.id);
    const { serviceOf } = dependencies.provider;
    const wentWell =
      stop === undefined && (serviceOf !== undefined || sending.tally.retriesWithin(rules.toleratedErrors));
    if (wentWell && chunk.share < 1) await rateLimiter.raiseRate().catch(() => undefined);
  };
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
