/**
 * Handles the jobs that failed for good, from the queue `dead-letters`. No recipient is lost with such a job: a chunk
 * becomes a dead letter that an operator can replay, and planning is retried until it succeeds.
 */
import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { rowCount, rows, selection } from "../../platform/database/sql/statements.ts";
import type { Job, Jobs } from "../../platform/messaging/jobs.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import { type DeliveryJob, failedJobQueue, type PlanJob } from "../database.ts";
import { deliveryChunks } from "../schema.ts";
import { completeIfDone } from "./complete-notification.ts";
import { lockNotification, type NotificationState } from "./lock-notification.ts";
import { enqueueRange, lockRange, reassignRange } from "./plan-ranges.ts";

const chunk = names(deliveryChunks);
const failed = selection({ notificationId: chunk.notificationId });

interface Dependencies {
  readonly db: Database;
  readonly jobs: Pick<Jobs, "enqueue" | "complete">;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Seconds after which planning whose job failed for good is retried. */
const planningRetrySeconds = 60;

/** The reason of the dead letter, for an operator. */
const reason =
  "Its job failed again and again, or the process that worked on it died each time: see the log.";

/** The state of a chunk after its job failed for good. */
type Fate = "DEAD" | "DONE" | "PENDING";

/** A chunk of a paused notification is parked: it gets another job when the notification is resumed. */
function fateOf(state: NotificationState): Fate {
  if (state === "CANCELLED") return "DONE";
  return state === "PAUSED" ? "PENDING" : "DEAD";
}

/**
 * Ends the chunk, if it still names the job that failed: a chunk that has ended names none. Raising the fence keeps a
 * worker that may have the chunk from writing it.
 * @returns its fate; undefined if nothing was done
 */
async function endChunk(
  tx: Database,
  chunkId: number,
  jobId: string | null,
  fate: Fate,
): Promise<Fate | undefined> {
  const dropped = sql`${chunk.dropped} = ${chunk.dropped} + cardinality(${chunk.deviceIds}), ${chunk.deviceIds} = '{}'`;
  const ended = await rowCount(
    tx,
    sql`
      update ${deliveryChunks}
      set ${chunk.state} = ${fate}, ${fate === "DONE" ? dropped : sql`${chunk.reason} = ${reason}`},
        ${chunk.jobId} = null, ${chunk.fence} = ${chunk.fence} + 1, ${chunk.isRetry} = true,
        ${chunk.updatedAt} = now()
      where ${chunk.id} = ${chunkId}::bigint and ${chunk.jobId} = ${jobId}::uuid
      returning 1 as one`,
  );
  return ended > 0 ? fate : undefined;
}

interface FailedJobHandler {
  /** Handles the jobs of the queue `dead-letters`. */
  handle(job: Job<Partial<PlanJob & DeliveryJob>>): Promise<void>;
}

export function createFailedJobHandler({ db, jobs, clock, logger }: Dependencies): FailedJobHandler {
  async function markChunkDead(job: Job<unknown>, chunkId: number): Promise<void> {
    const { notificationId, fate } = await db.transaction(async (tx) => {
      const [found] = await rows(
        tx,
        failed,
        sql`select ${failed} from ${deliveryChunks} where ${chunk.id} = ${chunkId}::bigint`,
      );
      const notification = found && (await lockNotification(tx, found.notificationId));
      const ended = notification && (await endChunk(tx, chunkId, job.failedId, fateOf(notification.state)));
      await jobs.complete(tx, failedJobQueue, job);
      return { notificationId: found?.notificationId, fate: ended };
    });
    if (fate === "DEAD")
      logger.error({ chunkId, notificationId }, "A chunk became a dead letter, as its job failed for good");
    // If this fails, the completion sweep does it.
    if (notificationId !== undefined) await completeIfDone(db, notificationId, clock).catch(() => undefined);
  }

  async function retryPlanning(job: Job<unknown>, notificationId: string): Promise<void> {
    const failed = { id: job.failedId ?? "", data: { notificationId } };
    const isOpen = await db.transaction(async (tx) => {
      // Its worker may have lost the job and still be in a step.
      if (job.failedId !== null) await lockRange(tx, failed);
      const notification = await lockNotification(tx, notificationId);
      // Resuming a paused notification gives the range a job again.
      const jobId = notification?.state === "PAUSED" ? null : randomUUID();
      const turn = job.failedId === null ? undefined : await reassignRange(tx, failed, jobId);
      await jobs.complete(tx, failedJobQueue, job);
      if (jobId === null || turn === undefined || !notification) return false;
      const { isTest } = notification;
      const startAfterSeconds = planningRetrySeconds;
      await enqueueRange(tx, jobs, notificationId, { jobId, turn, isTest, startAfterSeconds });
      return true;
    });
    if (!isOpen) return;
    const retryAfterSeconds = planningRetrySeconds;
    logger.error({ notificationId, retryAfterSeconds }, "A notification could not be planned yet");
  }

  return {
    async handle(job) {
      const { chunkId, notificationId } = job.data;
      if (chunkId !== undefined) return markChunkDead(job, chunkId);
      if (notificationId !== undefined) return retryPlanning(job, notificationId);
      logger.error({ jobId: job.id }, "A job with unknown data failed for good and is dropped");
      await db.transaction((tx) => jobs.complete(tx, failedJobQueue, job));
    },
  };
}
