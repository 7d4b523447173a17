/**
 * Planning: first a history entry for each of a notification's recipients, then chunks of their devices. Both go in
 * steps; a step is one short transaction that also writes down how far it has come. The promises:
 *
 * 1. A device is planned once, whatever it changes meanwhile, whoever dies, and however many plan at once: a step
 *    begins where the last one that was committed has ended.
 * 2. A user gets one history entry, however many devices, and none after being forgotten.
 * 3. It ends: devices that are registered after it began are not followed.
 */
import { setImmediate } from "node:timers/promises";
import { sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import type { Database } from "../../platform/database/database.ts";
import type { Job, Jobs } from "../../platform/messaging/jobs.ts";
import { type PlanJob, planQueue } from "../database.ts";
import type { ProviderName } from "../provider-settings.ts";
import { enqueueChunks } from "./chunk-jobs.ts";
import { completeIfDone } from "./complete-notification.ts";
import { cutChunks } from "./cut-chunks.ts";
import { lockNotification } from "./lock-notification.ts";
import { recordHistory } from "./record-history.ts";

/** Devices that one step looks at: few enough that who waits for the step does not notice. */
const defaultWindow = 32_000;

interface Dependencies {
  readonly db: Database;
  readonly jobs: Pick<Jobs, "enqueue" | "complete">;
  readonly clock: Clock;
  /** Those in use; devices of others are not planned. */
  readonly providers: readonly ProviderName[];
  /** Devices that one step looks at. */
  readonly window?: number;
}

interface Planner {
  /** Handles the jobs of the queue `plan`. */
  handle(job: Job<PlanJob>, stopping: AbortSignal): Promise<void>;
}

export function createPlanner(dependencies: Dependencies): Planner {
  const { db, jobs, clock, providers, window = defaultWindow } = dependencies;

  /** One step. @returns whether it ended the job: all is planned, or is not to be */
  function step(job: Job<PlanJob>): Promise<boolean> {
    return db.transaction(async (tx) => {
      const { notificationId } = job.data;
      const notification = await lockNotification(tx, notificationId);
      if (notification?.state !== "PLANNING") {
        // Paused, cancelled, or planned by somebody else. Who resumes it makes a new job.
        await jobs.complete(tx, planQueue, job);
        return true;
      }
      // Nobody is forgotten meanwhile. The lock must be had before the snapshot of the next statement is made.
      await tx.execute(sql`select pg_advisory_xact_lock_shared(hashtext('push.plan'))`);
      const { isTest, isRecorded } = notification;
      const at = sql`${new Date(clock.now()).toISOString()}::timestamptz`;
      const next = { notificationId, isTest, window, at, providers };
      if (!isRecorded) {
        await recordHistory(tx, next);
        return false;
      }
      const { chunks, first, isDone } = await cutChunks(tx, next);
      await enqueueChunks(tx, jobs, chunks, { first, isTest });
      if (isDone) await jobs.complete(tx, planQueue, job);
      return isDone;
    });
  }

  /** Leaves the rest to another process, now rather than when this one is found dead. */
  function handOver(job: Job<PlanJob>): Promise<void> {
    return db.transaction(async (tx) => {
      await jobs.complete(tx, planQueue, job);
      await jobs.enqueue(tx, planQueue, [{ data: job.data, priority: job.priority }]);
    });
  }

  return {
    async handle(job, stopping) {
      while (!(await step(job))) {
        if (stopping.aborted) return handOver(job);
        // On the embedded database a step keeps the process to itself: others have their turn in between.
        await setImmediate();
      }
      // If this fails, the sweep does it.
      await completeIfDone(db, job.data.notificationId, clock).catch(() => undefined);
    },
  };
}
