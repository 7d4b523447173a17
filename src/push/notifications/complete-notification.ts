/**
 * Completes notifications that have nothing left to plan or send. The check runs after each chunk has ended and after
 * planning, in a transaction of its own that follows theirs: if two chunks end at once, the later check sees both. If
 * the process dies before the check, the completion sweep completes the notification.
 */
import { type SQL, sql } from "drizzle-orm";
import { type Clock, systemClock } from "../../platform/base/clock.ts";
import { every, type Loop } from "../../platform/base/loop.ts";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { rowCount, rows, selection } from "../../platform/database/statements.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import { PushEvents, recordEvent } from "../events.ts";
import { deliveryChunks, notifications } from "../schema.ts";

const notification = names(notifications);
const chunk = names(deliveryChunks);
const n = names(notifications, "n");
const c = names(deliveryChunks, "c");

/** Time after a notification's expiry after which no worker has its open chunks any more. */
const abandonedAfter = sql`interval '1 hour'`;

const isOpen = sql`${c.notificationId} = ${n.id} and ${c.state} in ('PENDING', 'SENDING', 'HELD')`;

/** Condition on the notification `n`. A notification that stays paused past its expiry is completed too. */
const nothingIsLeft = sql`
  ${n.completedAt} is null and (${n.state} = 'CANCELLED'
    or ${n.state} = 'SENDING' and ${n.plannedAt} is not null
    or ${n.state} = 'PAUSED' and ${n.expiresAt} < now() - ${abandonedAfter})
  and not exists (select from ${deliveryChunks} c where ${isOpen})`;

const lock = (id: string) =>
  sql`select 1 from ${notifications} where ${notification.id} = ${id}::uuid for update`;

/**
 * Completes the notification if nothing of it is left, with its event. Must be called outside of any transaction.
 * @returns whether this call completed it
 */
export async function completeIfDone(
  db: Database,
  notificationId: string,
  clock: Clock = systemClock,
): Promise<boolean> {
  // Nearly always something is left, and then this one query is the whole cost.
  const candidates = await rowCount(
    db,
    sql`select 1 as one from ${notifications} n where ${n.id} = ${notificationId}::uuid and ${nothingIsLeft}`,
  );
  if (candidates === 0) return false;
  return db.transaction(async (tx) => {
    // The lock comes first, so that the next statement sees what its previous holder did: a replay reopens a chunk.
    await tx.execute(lock(notificationId));
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
            ${notification.completedAt} = ${at.toISOString()}::timestamptz
          where ${n.id} = ${notificationId}::uuid and ${nothingIsLeft}
          returning ${n.id}, ${n.state}, ${n.recipients}
        ),
        totals as (
          select ${total(planned)}, ${total(sent)}, ${total(failed)}, ${total(dropped)}
          from ${deliveryChunks} where ${chunk.notificationId} = ${notificationId}::uuid
        )
        ${recordEvent(PushEvents.notificationCompleted, fields, sql`from done, totals`, at)}`,
    );
    return completed > 0;
  });
}

/** Notifications that one round handles. */
const roundSize = 1_000;

const listed = selection({ id: n.id });

/**
 * Drops the open chunks of notifications that expired long ago. Such a chunk has no worker: its provider is no longer
 * in use, its job is lost, or its notification was paused and never resumed. Should a worker have it after all, that
 * worker can no longer write it, because the chunk's attempt is raised.
 */
async function dropAbandoned(db: Database): Promise<void> {
  const found = await rows(
    db,
    listed,
    sql`
      select ${listed} from ${notifications} n
      where ${n.completedAt} is null and ${n.expiresAt} < now() - ${abandonedAfter}
        and exists (select from ${deliveryChunks} c where ${isOpen})
      limit ${roundSize}::int`,
  );
  for (const { id } of found) {
    await db.transaction(async (tx) => {
      await tx.execute(lock(id));
      await tx.execute(sql`
        update ${deliveryChunks} c
        set ${chunk.state} = 'DONE', ${chunk.dropped} = ${c.dropped} + cardinality(${c.deviceIds}),
          ${chunk.deviceIds} = '{}', ${chunk.attempt} = ${c.attempt} + 1, ${chunk.updatedAt} = now()
        from ${notifications} n where ${n.id} = ${id}::uuid and ${isOpen}`);
    });
  }
}

/** Completes finished notifications that were left over, for example by a process that died. @returns how many */
export async function sweepCompletions(db: Database, clock: Clock = systemClock): Promise<number> {
  await dropAbandoned(db);
  const left = await rows(
    db,
    listed,
    sql`select ${listed} from ${notifications} n where ${nothingIsLeft} limit ${roundSize}::int`,
  );
  let completed = 0;
  for (const { id } of left) if (await completeIfDone(db, id, clock)) completed += 1;
  return completed;
}

/** Sweeps at an interval until stopped. A round that fails is logged; the next one comes as usual. */
export function startCompletionSweep({
  db,
  clock,
  logger,
  intervalSeconds = 30,
}: {
  readonly db: Database;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly intervalSeconds?: number;
}): Loop {
  return every(
    intervalSeconds * 1000,
    () => sweepCompletions(db, clock),
    (err) => logger.warn({ err }, "Finished notifications could not be completed yet"),
  );
}
