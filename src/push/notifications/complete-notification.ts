/**
 * Completes notifications that have nothing left to plan or send. The check runs after each chunk has ended and after
 * planning, in a later transaction, so that the last check sees all; what it misses the follower completes.
 */
import { type SQL, sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import { currentSpan } from "../../platform/base/tracing.ts";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/readers.ts";
import { prepared, rowCount } from "../../platform/database/sql/statements.ts";
import { PushEvents, recordEvent } from "../events.ts";
import { notificationUsers } from "../recipients-schema.ts";
import { deliveryChunks, notifications, planRanges } from "../schema.ts";
import { mergedTotals, parts, recipientsNow } from "./chunk-sums.ts";
import { isAbandoned, lockNotification } from "./lock-notification.ts";

const notification = names(notifications);
const chunk = names(deliveryChunks);
const named = names(notificationUsers);
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

/** @param notificationId a uuid. @param at a text */
function completion({ notificationId, at }: Record<"notificationId" | "at", unknown>): SQL {
  const done = names(notifications, "done");
  const { planned, sent, failed, dropped } = chunk;
  const id = sql`${notificationId}::uuid`;
  const time = sql`${at}::timestamptz`;
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
  return sql`
      with ${mergedTotals(id)},
      done as (
        update ${notifications} n
        set ${notification.state} = case ${n.state} when 'CANCELLED' then ${n.state} else 'COMPLETED' end,
          ${notification.completedAt} = ${time},
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
      -- A dead letter that is replayed needs the variables of its users.
      users_gone as (
        delete from ${notificationUsers} where ${named.notificationId} = ${id} and ${isDone} and not exists (
          select from ${deliveryChunks} where ${chunk.notificationId} = ${id} and ${chunk.state} = 'DEAD')
      ),
      -- The parked ranges of one that was cancelled or has expired; others are removed by who takes them.
      ranges_gone as (
        delete from ${planRanges}
        where ${range.notificationId} = ${id} and ${range.dueAt} = 'infinity' and ${isDone}
      )
      ${recordEvent(PushEvents.notificationCompleted, fields, { at: time, from: sql`from done, sums` })}`;
}

/** Each notification runs it. One that is traced has its text rendered anew, with its trace. */
const completionOnce = prepared(["notificationId", "at"], completion);

/**
 * Completes the notification if nothing of it is left, with its event. Its chunks that are DONE are added to its totals
 * and deleted; dead letters stay.
 * @param tx a transaction that has locked the notification
 * @returns whether this call completed it
 */
export async function completeNotification(tx: Database, notificationId: string, at: Date): Promise<boolean> {
  const values = { notificationId, at: at.toISOString() };
  return (await rowCount(tx, currentSpan() ? completion(values) : completionOnce(values))) > 0;
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
