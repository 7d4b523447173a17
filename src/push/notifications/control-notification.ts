/**
 * Pausing, resuming, cancelling and recalling: each changes the row of the notification, in one short transaction.
 * Workers look at its state, so within a second nothing more is sent; the chunks follow in steps.
 */
import { eq, type SQL, sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import type { Database } from "../../platform/database/database.ts";
import { notificationFinished, notificationNotFound } from "../errors.ts";
import { recipientsOf } from "../history/history-blocks.ts";
import type { PushWakeUps } from "../queue/work.ts";
import { notifications } from "../schema.ts";
import { completeIfDone } from "./complete-notification.ts";
import { followStep } from "./follow-chunks.ts";
import { type LockedNotification, lockNotification, type NotificationState } from "./lock-notification.ts";

interface Dependencies {
  readonly db: Database;
  readonly wakeUps: PushWakeUps;
  /** Has the chunks follow of which more are left than one step writes. */
  readonly follow: (notificationId: string) => void;
  readonly clock: Clock;
}

/** What is to be written; nothing: the notification stays as it is. */
interface Change {
  readonly state?: NotificationState;
  readonly heldAt?: null;
  readonly recalledAt?: Date;
  readonly recipients?: SQL;
}

const hasEnded = ({ state }: LockedNotification) => state === "COMPLETED" || state === "CANCELLED";

/** @throws ServiceError `notification_finished` if the notification has ended */
const unlessEnded =
  (decide: (notification: LockedNotification) => Change) =>
  (notification: LockedNotification): Change => {
    if (hasEnded(notification)) throw notificationFinished(`its state is ${notification.state}`);
    return decide(notification);
  };

const pause = unlessEnded(({ state }) => (state === "PAUSED" ? {} : { state: "PAUSED" }));
const resume = unlessEnded(({ state, isPlanned }) =>
  state === "PAUSED" ? { state: isPlanned ? "SENDING" : "PLANNING", heldAt: null } : {},
);
const cancel = unlessEnded(() => ({ state: "CANCELLED" }));

export function createControl({ db, wakeUps, follow, clock }: Dependencies) {
  const { history, recipients } = notifications;
  const recall = (notification: LockedNotification, id: string): Change => ({
    ...(!notification.isRecalled && { recalledAt: new Date(clock.now()) }),
    ...(!notification.isRecalled &&
      !notification.isPlanned && {
        recipients: sql`case when ${history} then ${recipientsOf(sql`${id}::uuid`)} else ${recipients} end`,
      }),
    ...(!hasEnded(notification) && { state: "CANCELLED" }),
  });

  /** @throws ServiceError if there is no such notification, and what `decide` throws */
  const changing =
    (decide: (notification: LockedNotification, id: string) => Change) => async (id: string) => {
      const isMore = await db.transaction(async (tx) => {
        const notification = await lockNotification(tx, id);
        if (!notification) throw notificationNotFound();
        const change = decide(notification, id);
        if (Object.keys(change).length === 0) return false;
        await tx.update(notifications).set(change).where(eq(notifications.id, id));
        return followStep(tx, id, { ...notification, ...change });
      });
      if (isMore) follow(id);
      wakeUps.wake("ranges", "chunks");
      await completeIfDone(db, id, clock);
    };

  return {
    pause: changing(pause),
    resume: changing(resume),
    cancel: changing(cancel),
    recall: changing(recall),
  };
}
