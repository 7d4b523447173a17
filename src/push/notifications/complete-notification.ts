/**
 * The end of a notification: nothing of it is left to be planned or sent. Looked for after each chunk has ended
 * and after planning, as a statement of its own after their transaction: of two that end at once, the later
 * look sees both. A process that dies in between leaves it to the sweep.
 */
import { sql } from "drizzle-orm";
import { type Clock, systemClock } from "../../platform/base/clock.ts";
import { every, type Loop } from "../../platform/base/loop.ts";
import { type Database, rows } from "../../platform/database/database.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import { PushEvents, recordEvent } from "../events.ts";

/** How long after a notification is worth nothing any more a chunk of it that is still open has nobody. */
const abandonedAfter = sql`interval '1 hour'`;

/** Where `n` is a notification. One that is paused for longer than it is worth anything has its end too. */
const nothingIsLeft = sql`
  n.completed_at is null and (n.state = 'CANCELLED' or n.state = 'SENDING' and n.planned_at is not null
    or n.state = 'PAUSED' and n.expires_at < now() - ${abandonedAfter})
  and not exists (
    select from push.delivery_chunks c
    where c.notification_id = n.id and c.state in ('PENDING', 'SENDING', 'HELD'))`;

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
  const looked = await rows(
    db,
    sql`select 1 as one from push.notifications n where n.id = ${notificationId}::uuid and ${nothingIsLeft}`,
  );
  if (looked.length === 0) return false;
  return db.transaction(async (tx) => {
    // The next statement must see the chunks as whoever had the lock left them: a replay opens one.
    await tx.execute(sql`select 1 from push.notifications where id = ${notificationId}::uuid for update`);
    const at = new Date(clock.now());
    const total = (column: string) =>
      sql`coalesce(sum(${sql.identifier(column)}), 0)::int as ${sql.identifier(column)}`;
    const fields = {
      notificationId: sql`done.id::text`,
      cancelled: sql`done.state = 'CANCELLED'`,
      recipients: sql`done.recipients`,
      planned: sql`planned`,
      sent: sql`sent`,
      failed: sql`failed`,
      dropped: sql`dropped`,
      // No chunk is open, so what is left is dead.
      deadLettered: sql`planned - sent - failed - dropped`,
    };
    const completed = await rows(
      tx,
      sql`
        with done as (
          update push.notifications n
          set state = case n.state when 'CANCELLED' then n.state else 'COMPLETED' end,
            completed_at = ${at.toISOString()}::timestamptz
          where n.id = ${notificationId}::uuid and ${nothingIsLeft}
          returning n.id, n.state, n.recipients
        ),
        totals as (
          select ${total("planned")}, ${total("sent")}, ${total("failed")}, ${total("dropped")}
          from push.delivery_chunks where notification_id = ${notificationId}::uuid
        )
        ${recordEvent(PushEvents.notificationCompleted, fields, sql`from done, totals`, at)}`,
    );
    return completed.length > 0;
  });
}

/** Notifications that one round looks at. */
const roundSize = 1_000;

/**
 * Drops what nobody will ever take: chunks of notifications that are long too late to be sent. Their provider is no
 * longer in use, their job has gone, or they were paused and never resumed. Whoever should have one in hand, after all, can write it no more.
 */
async function dropAbandoned(db: Database): Promise<void> {
  const isAbandoned = sql`c.notification_id = n.id and c.state in ('PENDING', 'SENDING', 'HELD')`;
  const found = await rows<{ id: string }>(
    db,
    sql`
      select n.id::text from push.notifications n
      where n.completed_at is null and n.expires_at < now() - ${abandonedAfter}
        and exists (select from push.delivery_chunks c where ${isAbandoned})
      limit ${roundSize}::int`,
  );
  for (const { id } of found) {
    await db.transaction(async (tx) => {
      await tx.execute(sql`select 1 from push.notifications where id = ${id}::uuid for update`);
      await tx.execute(sql`
        update push.delivery_chunks c
        set state = 'DONE', dropped = dropped + cardinality(device_ids), device_ids = '{}', attempt = attempt + 1,
          updated_at = now()
        from push.notifications n where n.id = ${id}::uuid and ${isAbandoned}`);
    });
  }
}

/** Completes those that a process that died has left, or that nobody works on. @returns how many */
export async function sweepCompletions(db: Database, clock: Clock = systemClock): Promise<number> {
  await dropAbandoned(db);
  const left = await rows<{ id: string }>(
    db,
    sql`select n.id::text from push.notifications n where ${nothingIsLeft} limit ${roundSize}::int`,
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
