/**
 * Completes notifications that have nothing left to plan or send. The check runs after each chunk has ended and after
 * planning, in a transaction of its own that follows theirs: if two chunks end at once, the later check sees both. If
 * the process dies before the check, the completion sweep completes the notification.
 */
import { type SQL, sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { rowCount } from "../../platform/database/sql/statements.ts";
import { PushEvents, recordEvent } from "../events.ts";
import { recipientsOf } from "../history/history-blocks.ts";
import { deliveryChunks, notifications, planRanges } from "../schema.ts";
import { lockNotification } from "./lock-notification.ts";

const notification = names(notifications);
const chunk = names(deliveryChunks);
const range = names(planRanges);
const n = names(notifications, "n");
const c = names(deliveryChunks, "c");

/** The time after a notification's expiry after which no worker has its open chunks any more. */
export const abandonedAfter = sql`interval '1 hour'`;

/** Condition on the chunk `c` of the notification `n`. */
export const isOpen = sql`${c.notificationId} = ${n.id} and ${c.state} in ('PENDING', 'SENDING')`;

/** Condition on the notification `n`. A notification that stays paused past its expiry is completed too. */
export const nothingIsLeft = sql`
  ${n.completedAt} is null and (${n.state} in ('SENDING', 'CANCELLED')
    or ${n.state} = 'PAUSED' and ${n.expiresAt} < now() - ${abandonedAfter})
  and not exists (select from ${deliveryChunks} c where ${isOpen})`;

/**
 * Completes the notification if nothing of it is left, with its event. Must be called outside of any transaction.
 * @returns whether this call completed it
 */
export async function completeIfDone(db: Database, notificationId: string, clock: Clock): Promise<boolean> {
  // Nearly always something is left, and then this one query is the whole cost.
  const candidates = await rowCount(
    db,
    sql`select 1 as one from ${notifications} n where ${n.id} = ${notificationId}::uuid and ${nothingIsLeft}`,
  );
  if (candidates === 0) return false;
  return db.transaction(async (tx) => {
    // The lock comes first, so that the next statement sees what its previous holder did: a replay reopens a chunk.
    await lockNotification(tx, notificationId);
    const at = new Date(clock.now());
    const done = names(notifications, "done");
    const { planned, sent, failed, dropped } = chunk;
    const total = (count: SQL) => sql`coalesce(sum(${count}), 0)::int as ${count}`;
    const fields = {
      notificationId: sql`${done.id}::text`,
      cancelled: sql`${done.state} = 'CANCELLED'`,
      recipients: done.recipients,
      planned,
      sent,
      failed,
      dropped,
      // No chunk is open, so all remaining devices are in dead letters.
      deadLettered: sql`${planned} - ${sent} - ${failed} - ${dropped}`,
    };
    const completed = await rowCount(
      tx,
      sql`
        with done as (
          update ${notifications} n
          set ${notification.state} = case ${n.state} when 'CANCELLED' then ${n.state} else 'COMPLETED' end,
            ${notification.completedAt} = ${at.toISOString()}::timestamptz,
            -- While a notification is planned they are counted now and then, and a recalled one has no entries any more.
            ${notification.recipients} = case when ${n.plannedAt} is null and ${n.recalledAt} is null
              then ${recipientsOf(sql`${notificationId}::uuid`)} else ${n.recipients} end
          where ${n.id} = ${notificationId}::uuid and ${nothingIsLeft}
          returning ${n.id}, ${n.state}, ${n.recipients}
        ),
        totals as (
          select ${total(planned)}, ${total(sent)}, ${total(failed)}, ${total(dropped)}
          from ${deliveryChunks} where ${chunk.notificationId} = ${notificationId}::uuid
        )
        ${recordEvent(PushEvents.notificationCompleted, fields, { at, from: sql`from done, totals` })}`,
    );
    // The parked ranges of a notification that was cancelled or has expired; a range with a job is removed by that job.
    if (completed > 0) {
      await tx.execute(sql`
        delete from ${planRanges} where ${range.notificationId} = ${notificationId}::uuid and ${range.jobId} is null`);
    }
    return completed > 0;
  });
}
