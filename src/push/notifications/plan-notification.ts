/**
 * Planning: first a history entry for each of a notification's recipients, then chunks of their devices. Both go in
 * steps; a step is one short transaction that also stores how far planning has come. The guarantees:
 *
 * 1. A device is planned once, even if it changes meanwhile, a process dies, or several processes plan at once: a step
 *    begins where the last committed step has ended.
 * 2. A user gets one history entry for any number of devices, and none after the user was deleted.
 * 3. Planning ends: devices that are registered after it began are not visited.
 */
import { setImmediate } from "node:timers/promises";
import { sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import type { Database } from "../../platform/database/database.ts";
import type { Job, Jobs } from "../../platform/messaging/jobs.ts";
import { type PlanJob, planQueue } from "../database.ts";
import type { ProviderName } from "../provider-settings.ts";
import { enqueueChunks, wakeWorkers } from "./chunk-jobs.ts";
import { completeIfDone } from "./complete-notification.ts";
import { cutChunks } from "./cut-chunks.ts";
import { lockNotification } from "./lock-notification.ts";
import { recordHistory } from "./record-history.ts";
import { type ZoneOffsets, zoneOffsets } from "./zone-offsets.ts";

/** Devices that one step visits: few enough that others hardly notice that they wait for the step. */
const defaultWindow = 32_000;

interface Dependencies {
  readonly db: Database;
  readonly jobs: Pick<Jobs, "enqueue" | "complete" | "wake">;
  readonly clock: Clock;
  /** The providers in use; devices of other providers are not planned. */
  readonly providers: readonly ProviderName[];
  /** Devices that one step visits. */
  readonly window?: number;
}

interface Planner {
  /** Handles the jobs of the queue `plan`. */
  handle(job: Job<PlanJob>, stopping: AbortSignal): Promise<void>;
}

export function createPlanner(dependencies: Dependencies): Planner {
  const { db, jobs, clock, providers, window = defaultWindow } = dependencies;

  /** One step. @returns whether it ended the job: planning is finished, or must not go on */
  function step(job: Job<PlanJob>, zones: ZoneOffsets): Promise<boolean> {
    return db.transaction(async (tx) => {
      const { notificationId } = job.data;
      const notification = await lockNotification(tx, notificationId);
      if (notification?.state !== "PLANNING") {
        // Paused, cancelled, or planned by another process. Resuming makes a new job.
        await jobs.complete(tx, planQueue, job);
        return true;
      }
      // No user is deleted during a step. The lock must be acquired before the next statement takes its snapshot.
      await tx.execute(sql`select pg_advisory_xact_lock_shared(hashtext('push.plan'))`);
      const { isTest, isRecorded } = notification;
      const at = sql`${new Date(clock.now()).toISOString()}::timestamptz`;
      const next = { notificationId, isTest, window, at, providers, zones };
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

  /** Puts the job back into the queue, so that another process continues at once and not only after a timeout. */
  function handOver(job: Job<PlanJob>): Promise<void> {
    return db.transaction(async (tx) => {
      await jobs.complete(tx, planQueue, job);
      await jobs.enqueue(tx, planQueue, [{ data: job.data, priority: job.priority }]);
    });
  }

  return {
    async handle(job, stopping) {
      const zones = await zoneOffsets(db, job.data.notificationId);
      for (let isDone = false; !isDone; ) {
        isDone = await step(job, zones);
        wakeWorkers(jobs);
        if (isDone) break;
        if (stopping.aborted) return handOver(job);
        // On the embedded database a step blocks the event loop; this lets other work run in between.
        await setImmediate();
      }
      // If this fails, the completion sweep does it.
      await completeIfDone(db, job.data.notificationId, clock).catch(() => undefined);
    },
  };
}
