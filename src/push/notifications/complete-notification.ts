/**
 * Completes notifications that have nothing left to plan or send. The check runs after each chunk has ended and after
 * planning, in a later transaction, so that the last check sees all; what it misses the follower completes.
 */
import { type SQL, sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/readers.ts";
import { rowCount } from "../../platform/database/sql/statements.ts";
import { PushEvents, recordEvent } from "../events.ts";
import { deliveryChunks, notifications, planRanges } from "../schema.ts";
import { mergedTotals, parts, recipientsNow } from "./chunk-sums.ts";
import { isAbandoned, lockNotification } from "./lock-notification.ts";

const notification = names(notifications);
const chunk = names(deliveryChunks);
const range = names(planRanges);
const n = names(notifications, "n");
const c = names(deliveryChunks, "c");

/** Condition on the notification `n`; also for one that stays paused past its expiry. */
export const nothingIsLeft = sql`
  (${n.completedAt} is null
    and (${n.state} in ('SENDING', 'CANCELLED') or ${n.state} = 'PAUSED' and ${isAbandoned(n.expiresAt)})
    and not exists (
      select from ${deliveryChunks} c
      where ${c.notificationId} = ${n.id} and ${c.state} in ('READY', 'WAITING', 'PARKED', 'TAKEN') offset 0))`;

/**
 * Completes the notification if nothing of it is left, with its event. Its chunks that are DONE are added to its totals
 * and deleted; dead letters stay.
 * @param tx a transaction that has locked the notification
 * @returns whether this call completed it
 */
export async function completeNotification(tx: Database, notificationId: string, at: Date): Promise<boolean> {
  const done = names(notifications, "done");
  const { planned, sent, failed, dropped } = chunk;
  const id = sql`${notificationId}::uuid`;
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
  const isDone = sql`exists (select from done)`;
  const completed = await rowCount(
    tx,
    sql`
      with ${mergedTotals(id)},
      done as (
        update ${notifications} n
        set ${notification.state} = case ${n.state} when 'CANCELLED' then ${n.state} else 'COMPLETED' end,
          ${notification.completedAt} = ${at.toISOString()}::timestamptz,
          ${notification.totals} = (select merged_totals from merged),
          ${notification.recipients} = ${recipientsNow}
        where ${n.id} = ${id} and ${nothingIsLeft}
        returning ${n.id}, ${n.state}, ${n.recipients}
      ),
      sums as (
        select ${total(planned)}, ${total(sent)}, ${total(failed)}, ${total(dropped)}
        from ${notifications} n cross join ${parts} where ${n.id} = ${id}
      ),
      chunks_gone as (
        delete from ${deliveryChunks} where ${chunk.notificationId} = ${id} and ${chunk.state} = 'DONE' and ${isDone}
      ),
      -- The parked ranges of one that was cancelled or has expired; others are removed by who takes them.
      ranges_gone as (
        delete from ${planRanges}
        where ${range.notificationId} = ${id} and ${range.dueAt} = 'infinity' and ${isDone}
      )
      ${recordEvent(PushEvents.notificationCompleted, fields, { at, from: sql`from done, sums` })}`,
  );
  return completed > 0;
}

/**
 * Completes the notification if nothing of it is left. Must be called outside of any transaction.
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
    await lockNotification(tx, notificationId);
    return completeNotification(tx, notificationId, new Date(clock.now()));
  });
}
