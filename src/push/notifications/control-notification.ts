/**
 * Pausing, resuming and cancelling: each changes the state of the notification, in one short transaction however many
 * chunks it has. Workers look at the state when they take a chunk, while they send it, and when they store its results,
 * so nothing more is sent within a second. The chunks follow in steps.
 */
import { sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import type { Jobs } from "../../platform/messaging/jobs.ts";
import { followQueue, planQueue, planRestQueue } from "../database.ts";
import { notificationFinished, notificationNotFound } from "../errors.ts";
import { notifications } from "../schema.ts";
import { wakeWorkers } from "./chunk-jobs.ts";
import { completeIfDone } from "./complete-notification.ts";
import { followNotification } from "./follow-chunks.ts";
import { type LockedNotification, lockNotification, type NotificationState } from "./lock-notification.ts";

const notification = names(notifications);

interface Dependencies {
  readonly db: Database;
  readonly jobs: Pick<Jobs, "enqueue" | "wake">;
  readonly clock: Clock;
}

/** Each operation can be repeated, except on a notification that has ended. */
interface Control {
  pause(id: string): Promise<void>;
  resume(id: string): Promise<void>;
  cancel(id: string): Promise<void>;
}

export function createControl({ db, jobs, clock }: Dependencies): Control {
  /**
   * @param next the state to change to; undefined: there is nothing to do
   * @throws ServiceError if there is no such notification, or it has ended
   */
  async function change(
    id: string,
    next: (notification: LockedNotification) => NotificationState | undefined,
  ): Promise<void> {
    await db.transaction(async (tx) => {
      const notification = await lockNotification(tx, id);
      if (!notification) throw notificationNotFound();
      if (notification.state === "COMPLETED" || notification.state === "CANCELLED")
        throw notificationFinished();
      const state = next(notification);
      if (state === undefined) return;
      await setState(tx, id, state);
      const { isTest } = notification;
      await followNotification(tx, jobs, { state, isTest }, { notificationId: id, released: 0 });
    });
    for (const queue of [planQueue, planRestQueue, followQueue]) jobs.wake(queue);
    wakeWorkers(jobs);
    await completeIfDone(db, id, clock);
  }

  return {
    pause: (id) => change(id, ({ state }) => (state === "PAUSED" ? undefined : "PAUSED")),
    resume: (id) =>
      change(id, ({ state, isPlanned }) => {
        if (state !== "PAUSED") return undefined;
        return isPlanned ? "SENDING" : "PLANNING";
      }),
    cancel: (id) => change(id, () => "CANCELLED"),
  };
}

async function setState(tx: Database, id: string, state: NotificationState): Promise<void> {
  await tx.execute(
    sql`update ${notifications} set ${notification.state} = ${state} where ${notification.id} = ${id}::uuid`,
  );
}
