/**
 * The work on one chunk, from taking it to writing it down. What was sent is written down with the end of the job;
 * a process that dies in between has sent messages that are sent again, with the same ids, and no others.
 */
import { isDatabaseUnavailable, sqlState } from "../../platform/base/database-errors.ts";
import { pause } from "../../platform/base/loop.ts";
import type { Database } from "../../platform/database/database.ts";
import { type Job, JobLostError, type Jobs } from "../../platform/messaging/jobs.ts";
import { type DeliveryJob, deliveryQueue } from "../database.ts";
import { imageUrl } from "../providers/image-url.ts";
import type { NotificationContent } from "../providers/provider.ts";
import { loadDevices, refuseChunk, type TakenChunk, takeChunk } from "./chunk-repository.ts";
import type { Random } from "./delivery-rules.ts";
import { nextTry } from "./next-try.ts";
import { stopRemovalIfTooMany } from "./removal-stop.ts";
import { type SendDependencies, type Sending, sendChunk } from "./send-chunk.ts";
import { type ChunkResult, type RemoveDeadDevices, type Settled, settleChunk } from "./settle-chunk.ts";

/** Completes a notification if nothing of it is left to send. */
export type CompleteIfDone = (db: Database, notificationId: string) => Promise<unknown>;

interface Dependencies extends SendDependencies {
  readonly db: Database;
  readonly jobs: Pick<Jobs, "complete" | "enqueue">;
  readonly maxDeadPercent: number;
  readonly imageBaseUrl: string | undefined;
  readonly completeIfDone: CompleteIfDone;
  readonly removeDeadDevices: RemoveDeadDevices;
  readonly random: Random;
}

/** Handles a job of the provider's queue. */
type DeliverChunk = (job: Job<DeliveryJob>, stopping: AbortSignal) => Promise<void>;

/** Milliseconds between tries to write a chunk down. */
const settleAgainMs = 1_000;
/** Milliseconds that a loop waits at most while its provider is paused, so that it does not move all jobs about. */
const longestRestMs = 1_000;

export function createDeliverChunk(dependencies: Dependencies): DeliverChunk {
  const { db, jobs, pace, rules, random, logger, metrics, imageBaseUrl } = dependencies;
  const provider = dependencies.provider.name;
  /** Reasons of failed messages that were logged, each once for a notification. */
  const told = new Set<string>();

  /** The sweep of unfinished notifications makes up for what fails here. */
  async function complete(notificationId: string): Promise<void> {
    await dependencies.completeIfDone(db, notificationId).catch((err: unknown) => {
      logger.warn({ err, notificationId }, "a notification could not be completed yet");
    });
  }

  async function refuse(job: Job<DeliveryJob>, stopping: AbortSignal): Promise<void> {
    const { chunkId } = job.data;
    const queue = deliveryQueue(provider);
    const refused = await db.transaction(async (tx) => {
      const chunk = await refuseChunk(tx, provider, chunkId, job.retryCount > 0);
      if (chunk?.againInMs !== undefined) {
        await jobs.enqueue(tx, queue, [
          { data: job.data, priority: job.priority, startAfterSeconds: chunk.againInMs / 1000 },
        ]);
      }
      await jobs.complete(tx, queue, job);
      return chunk;
    });
    if (refused?.dropped !== undefined) {
      metrics.messages.inc({ provider, outcome: "dropped" }, refused.dropped);
      await complete(refused.notificationId);
    }
    const { againInMs = 0 } = refused ?? {};
    if (againInMs === 0) return;
    metrics.paused(provider, true);
    await pause(Math.min(againInMs, longestRestMs), stopping);
  }

  async function settle(job: Job<DeliveryJob>, chunk: TakenChunk, result: ChunkResult): Promise<Settled> {
    const { dead, sent, failed } = result;
    if (result.removeDead && dead.length > 0) {
      const report = { chunk, provider, dead: dead.length, attempted: sent + failed };
      const limits = { maxDeadPercent: dependencies.maxDeadPercent, leastDead: rules.leastDead };
      const stopped = await stopRemovalIfTooMany(db, report, limits);
      if (stopped) {
        metrics.removalStops.inc({ provider });
        const about = { notificationId: chunk.notification.id, provider, ...stopped };
        logger.error(
          about,
          "too many devices of a notification are reported dead; no more of their tokens are removed. " +
            "Check whether the provider's project or credentials were changed",
        );
      }
    }
    return settleChunk(
      { db, jobs, provider, removeDeadDevices: dependencies.removeDeadDevices },
      job,
      chunk,
      result,
    );
  }

  /** What was sent is known here only: the database's absence is waited for, rather than sending again. */
  async function settleInTime(
    job: Job<DeliveryJob>,
    chunk: TakenChunk,
    result: ChunkResult,
  ): Promise<Settled> {
    const until = performance.now() + rules.settleForMs;
    for (;;) {
      try {
        return await settle(job, chunk, result);
      } catch (err) {
        if (!isTemporary(err) || performance.now() > until) throw err;
        logger.warn(
          { err, chunk: chunk.id },
          "a chunk of messages could not be written down; it is tried again",
        );
        await pause(settleAgainMs);
      }
    }
  }

  function tell(chunk: TakenChunk, { tally }: Sending, result: ChunkResult, settled: Settled): void {
    const { counts } = tally;
    const dropped = result.dropped + settled.dropped;
    for (const [outcome, count] of Object.entries({ ...counts, dropped })) {
      if (count > 0) metrics.messages.inc({ provider, outcome }, count);
    }
    const notificationId = chunk.notification.id;
    for (const reason of tally.failures) {
      const key = `${notificationId} ${reason}`;
      if (told.has(key)) continue;
      if (told.size >= 1000) told.clear();
      told.add(key);
      logger.warn(
        { notificationId, provider, reason },
        "the push provider does not take messages of a notification",
      );
    }
    if (settled.state !== "DEAD") return;
    metrics.givenUp.inc({ provider });
    logger.error(
      { notificationId, provider, chunk: chunk.id, devices: result.rest.length, reason: result.next.reason },
      "a chunk of messages was given up; an operator can send it again",
    );
  }

  return async (job, stopping) => {
    const began = performance.now();
    const chunk = await takeChunk(db, provider, job.data.chunkId, job.retryCount > 0);
    if (!chunk) return refuse(job, stopping);
    metrics.paused(provider, false);
    const devices = await loadDevices(db, provider, chunk.id);
    const content = contentOf(chunk, imageBaseUrl);
    const sending = await sendChunk(dependencies, chunk, content, devices, stopping);
    if (sending.stop === "lost") throw new JobLostError(`chunk ${chunk.id} is another worker's now`);
    const { counts, dead } = sending.tally;
    const rest = sending.tally.rest();
    const result = {
      sent: counts.sent,
      failed: counts.failed + counts.dead,
      dropped: chunk.devices - devices.length,
      dead,
      // Where the provider refuses us, its word on tokens is worth nothing either.
      removeDead: counts.refused === 0,
      rest,
      next: nextTry(chunk, sending, rest.length, rules, random),
    };
    const settled = await settleInTime(job, chunk, result);
    metrics.chunkEnded(provider, (performance.now() - began) / 1000);
    tell(chunk, sending, result, settled);
    if (settled.state === "DONE" || settled.state === "DEAD") await complete(chunk.notification.id);
    const isGood =
      sending.stop === undefined &&
      (!dependencies.provider.isOneService || counts.retry <= sending.tally.answered * rules.toleratedErrors);
    if (isGood && chunk.share < 1) await pace.raiseRate().catch(() => undefined);
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

/** The database is away, or two transactions were in each other's way. */
function isTemporary(thrown: unknown): boolean {
  return isDatabaseUnavailable(thrown) || ["40001", "40P01"].includes(sqlState(thrown) ?? "");
}
