/**
 * The end of a notification: nothing of it is left to be planned or sent. Looked for after each chunk has ended
 * and after planning, as a statement of its own after their transaction: of two that end at once, the later
 * look sees both. A process that dies in between leaves it to the sweep.
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

/** How long after a notification is worth nothing any more a chunk of it that is still open has nobody. */
const abandonedAfter = sql`interval '1 hour'`;

const isOpen = sql`${c.notificationId} = ${n.id} and ${c.state} in ('PENDING', 'SENDING', 'HELD')`;

/** Where `n` is a notification. One that is paused for longer than it is worth anything has its end too. */
const nothingIsLeft = sql`
  ${n.completedAt} is null and (${n.state} = 'CANCELLED'
    or ${n.state} = 'SENDING' and ${n.plannedAt} is not null
    or ${n.state} = 'PAUSED' and ${n.expiresAt} < now() - ${abandonedAfter})
  and not exists (select from ${deliveryChunks} c where ${isOpen})`;

const lock = (id: string) =>
  sql`select 1 from ${notifications} where ${notification.id} = ${id}::uuid for update`;

/**
 * Completes it if nothing of it is left, with the event that says so. Call it outside of any transaction.
 * @returns whether it did
 */
export async function completeIfDone(
  db: Database,
  notificationId: string,
  clock: Clock = systemClock,
): Promise<boolean> {
  // Nearly always there is something left, and one look is all it costs.
  const looked = await rowCount(
    db,
    sql`select 1 as one from ${notifications} n where ${n.id} = ${notificationId}::uuid and ${nothingIsLeft}`,
  );
  if (looked === 0) return false;
  return db.transaction(async (tx) => {
    // The next statement must see the chunks as whoever had the lock left them: a replay opens one.
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
      // No chunk is open, so what is left is dead.
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

/** Notifications that one round looks at. */
const roundSize = 1_000;

const listed = selection({ id: n.id });

/**
 * Drops what nobody will ever take: chunks of notifications that are long too late to be sent. Their provider is no
 * longer in use, their job has gone, or they were paused and never resumed. Whoever should have one in hand, after all, can write it no more.
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

/** Completes those that a process that died has left, or that nobody works on. @returns how many */
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

/** Sweeps at an interval until stopped. A round that fails is logged and tried again. */
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
    (err) => logger.warn({ err }, "finished notifications could not be completed; it is tried again"),
  );
}
