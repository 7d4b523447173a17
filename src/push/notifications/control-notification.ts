/**
 * Pausing, resuming, cancelling and recalling: each changes the row of the notification, in one short transaction,
 * however many chunks and history entries it has. Workers look at the state when they take a chunk, while they send it,
 * and when they store its results, so within a second nothing more is sent. The chunks follow in steps.
 */
import { sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
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

/** Each operation can be repeated; only `recall` can be done to a notification that has ended. */
interface Control {
  pause(id: string): Promise<void>;
  resume(id: string): Promise<void>;
  cancel(id: string): Promise<void>;
  /** Cancels the notification unless it has ended, and removes it from all histories. */
  recall(id: string): Promise<void>;
}

/** Decides the new state, in the transaction that has the lock; undefined: the state stays as it is. */
type Decide = (
  notification: LockedNotification,
  tx: Database,
) => NotificationState | undefined | Promise<NotificationState | undefined>;

const hasEnded = ({ state }: LockedNotification) => state === "COMPLETED" || state === "CANCELLED";

/** @throws ServiceError `notification_finished` if the notification has ended */
const unlessEnded =
  (decide: (notification: LockedNotification) => NotificationState | undefined): Decide =>
  (notification) => {
    if (hasEnded(notification)) throw notificationFinished();
    return decide(notification);
  };

export function createControl({ db, jobs, clock }: Dependencies): Control {
  /** @throws ServiceError if there is no such notification, and what `decide` throws */
  async function change(id: string, decide: Decide): Promise<void> {
    await db.transaction(async (tx) => {
      const notification = await lockNotification(tx, id);
      if (!notification) throw notificationNotFound();
      const state = await decide(notification, tx);
      if (state === undefined) return;
      await setState(tx, id, state);
      const { isTest } = notification;
      await followNotification(tx, jobs, { state, isTest }, { notificationId: id, released: 0 });
    });
    for (const queue of [planQueue, planRestQueue, followQueue]) jobs.wake(queue);
    wakeWorkers(jobs);
    await completeIfDone(db, id, clock);
  }

  const pause = unlessEnded(({ state }) => (state === "PAUSED" ? undefined : "PAUSED"));
  const resume = unlessEnded(({ state, isPlanned }) => {
    if (state !== "PAUSED") return undefined;
    return isPlanned ? "SENDING" : "PLANNING";
  });
  return {
    pause: (id) => change(id, pause),
    resume: (id) => change(id, resume),
    cancel: (id) =>
      change(
        id,
        unlessEnded(() => "CANCELLED"),
      ),
    recall: (id) =>
      change(id, async (notification, tx) => {
        await setRecalled(tx, id, clock);
        return hasEnded(notification) ? undefined : "CANCELLED";
      }),
  };
}

/** Sets the time of the first recall. */
async function setRecalled(tx: Database, id: string, clock: Clock): Promise<void> {
  const now = new Date(clock.now()).toISOString();
  await tx.execute(sql`
    update ${notifications} set ${notification.recalledAt} = coalesce(${notification.recalledAt}, ${now}::timestamptz)
    where ${notification.id} = ${id}::uuid`);
}

async function setState(tx: Database, id: string, state: NotificationState): Promise<void> {
  await tx.execute(
    sql`update ${notifications} set ${notification.state} = ${state} where ${notification.id} = ${id}::uuid`,
  );
}
