/**
 * Jobs that failed for good, on the queue `dead-letters`. None takes its recipients with it: a chunk becomes a
 * dead letter that an operator can send again, and planning is tried again for as long as it fails.
 */
import { sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { rows, selection } from "../../platform/database/statements.ts";
import type { Job, Jobs } from "../../platform/messaging/jobs.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import { type DeliveryJob, deadLetterQueue, type PlanJob, planQueue } from "../database.ts";
import { deliveryChunks } from "../schema.ts";
import { completeIfDone } from "./complete-notification.ts";
import { lockNotification } from "./lock-notification.ts";

const chunk = names(deliveryChunks);
const failed = selection({ notificationId: chunk.notificationId });

interface Dependencies {
  readonly db: Database;
  readonly jobs: Pick<Jobs, "enqueue" | "complete">;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Seconds after which planning that failed for good is tried again. */
const planAgainSeconds = 60;

/** For an operator. */
const reason =
  "Its job failed again and again, or the process that worked on it died each time: see the log.";

interface DeadLetterHandler {
  /** Handles the jobs of the queue `dead-letters`. */
  handle(job: Job<Partial<PlanJob & DeliveryJob>>): Promise<void>;
}

export function createDeadLetterHandler({ db, jobs, clock, logger }: Dependencies): DeadLetterHandler {
  async function buryChunk(job: Job<unknown>, chunkId: number): Promise<void> {
    const notificationId = await db.transaction(async (tx) => {
      const [found] = await rows(
        tx,
        failed,
        sql`select ${failed} from ${deliveryChunks} where ${chunk.id} = ${chunkId}::bigint`,
      );
      const notification = found && (await lockNotification(tx, found.notificationId));
      // Who may still have it in hand can write it no more. What is held gets another job when it is resumed.
      if (notification?.state === "CANCELLED") {
        await tx.execute(sql`
          update ${deliveryChunks}
          set ${chunk.state} = 'DONE', ${chunk.dropped} = ${chunk.dropped} + cardinality(${chunk.deviceIds}),
            ${chunk.deviceIds} = '{}', ${chunk.attempt} = ${chunk.attempt} + 1, ${chunk.updatedAt} = now()
          where ${chunk.id} = ${chunkId}::bigint and ${chunk.state} in ('PENDING', 'SENDING')`);
      } else if (notification) {
        await tx.execute(sql`
          update ${deliveryChunks}
          set ${chunk.state} = 'DEAD', ${chunk.reason} = ${reason}, ${chunk.attempt} = ${chunk.attempt} + 1,
            ${chunk.updatedAt} = now()
          where ${chunk.id} = ${chunkId}::bigint and ${chunk.state} in ('PENDING', 'SENDING')`);
      }
      await jobs.complete(tx, deadLetterQueue, job);
      return found?.notificationId;
    });
    logger.error({ chunkId, notificationId }, "a chunk became a dead letter: its job failed for good");
    // If this fails, the sweep does it.
    if (notificationId !== undefined) await completeIfDone(db, notificationId, clock).catch(() => undefined);
  }

  async function planAgain(job: Job<unknown>, notificationId: string): Promise<void> {
    const data: PlanJob = { notificationId };
    const isOpen = await db.transaction(async (tx) => {
      const notification = await lockNotification(tx, notificationId);
      // Paused ones get another job when they are resumed.
      const isPlanning = notification?.state === "PLANNING";
      if (isPlanning) await jobs.enqueue(tx, planQueue, [{ data, startAfterSeconds: planAgainSeconds }]);
      await jobs.complete(tx, deadLetterQueue, job);
      return isPlanning;
    });
    if (!isOpen) return;
    const again = `it is tried again in ${planAgainSeconds} seconds`;
    logger.error({ notificationId }, `a notification could not be planned, its recipients wait: ${again}`);
  }

  return {
    async handle(job) {
      const { chunkId, notificationId } = job.data;
      if (chunkId !== undefined) return buryChunk(job, chunkId);
      if (notificationId !== undefined) return planAgain(job, notificationId);
      logger.error({ job: job.id }, "a job that nobody knows failed for good; it is dropped");
      await db.transaction((tx) => jobs.complete(tx, deadLetterQueue, job));
    },
  };
}
