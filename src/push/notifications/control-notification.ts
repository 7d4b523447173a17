/**
 * Pausing, resuming and cancelling. Each is one transaction that locks the notification, so that no planning step and
 * no worker that stores a chunk runs in between. A chunk that a worker is sending is held or dropped by that worker,
 * which checks the notification's state while it sends and when it stores the results.
 */
import { type SQL, sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { oneOf } from "../../platform/database/readers.ts";
import { computed, rows, selection } from "../../platform/database/statements.ts";
import type { Jobs } from "../../platform/messaging/jobs.ts";
import { type PlanJob, planQueue } from "../database.ts";
import { notificationFinished, notificationNotFound } from "../errors.ts";
import { providerNames } from "../provider-settings.ts";
import { deliveryChunks, notifications } from "../schema.ts";
import { enqueueChunks, type WaitingChunk } from "./chunk-jobs.ts";
import { completeIfDone } from "./complete-notification.ts";
import { type LockedNotification, lockNotification, type NotificationState } from "./lock-notification.ts";

const notification = names(notifications);
const chunk = names(deliveryChunks);

interface Dependencies {
  readonly db: Database;
  readonly jobs: Pick<Jobs, "enqueue">;
  readonly clock: Clock;
}

/** Each operation can be repeated, except on a notification that has ended. */
interface Control {
  pause(id: string): Promise<void>;
  resume(id: string): Promise<void>;
  cancel(id: string): Promise<void>;
}

export function createControl({ db, jobs, clock }: Dependencies): Control {
  const now = () => sql`${new Date(clock.now()).toISOString()}::timestamptz`;

  /** @throws ServiceError if there is no such notification, or it has ended */
  async function change(
    id: string,
    act: (tx: Database, notification: LockedNotification) => Promise<void>,
  ): Promise<void> {
    await db.transaction(async (tx) => {
      const notification = await lockNotification(tx, id);
      if (!notification) throw notificationNotFound();
      if (notification.state === "COMPLETED" || notification.state === "CANCELLED")
        throw notificationFinished();
      await act(tx, notification);
    });
  }

  return {
    pause: (id) =>
      change(id, async (tx, { state }) => {
        if (state === "PAUSED") return;
        await setState(tx, id, "PAUSED");
        await tx.execute(sql`
          update ${deliveryChunks} set ${chunk.state} = 'HELD', ${chunk.updatedAt} = ${now()}
          where ${chunk.notificationId} = ${id}::uuid and ${chunk.state} = 'PENDING'`);
      }),
    async resume(id) {
      await change(id, async (tx, { state, isPlanned, isTest }) => {
        if (state !== "PAUSED") return;
        await setState(tx, id, isPlanned ? "SENDING" : "PLANNING");
        if (!isPlanned) {
          const data: PlanJob = { notificationId: id };
          await jobs.enqueue(tx, planQueue, [{ data }]);
        }
        await enqueueChunks(tx, jobs, await releaseHeld(tx, id, now()), { first: 0, isTest });
      });
      await completeIfDone(db, id, clock);
    },
    async cancel(id) {
      await change(id, async (tx) => {
        await setState(tx, id, "CANCELLED");
        await tx.execute(sql`
          update ${deliveryChunks}
          set ${chunk.state} = 'DONE', ${chunk.dropped} = ${chunk.dropped} + cardinality(${chunk.deviceIds}),
            ${chunk.deviceIds} = '{}', ${chunk.updatedAt} = ${now()}
          where ${chunk.notificationId} = ${id}::uuid and ${chunk.state} in ('PENDING', 'HELD')`);
      });
      await completeIfDone(db, id, clock);
    },
  };
}

async function setState(tx: Database, id: string, state: NotificationState): Promise<void> {
  await tx.execute(
    sql`update ${notifications} set ${notification.state} = ${state} where ${notification.id} = ${id}::uuid`,
  );
}

const waiting = selection({ id: chunk.id, provider: computed(oneOf(providerNames), chunk.provider) });

/** Makes held chunks PENDING. @returns the chunks, in the order in which they were planned */
async function releaseHeld(tx: Database, id: string, now: SQL): Promise<WaitingChunk[]> {
  const released = await rows(
    tx,
    waiting,
    sql`
      update ${deliveryChunks} set ${chunk.state} = 'PENDING', ${chunk.updatedAt} = ${now}
      where ${chunk.notificationId} = ${id}::uuid and ${chunk.state} = 'HELD'
      returning ${waiting}`,
  );
  return released.toSorted((a, b) => a.id - b.id);
}
