/**
 * Removes what has expired or is older than it is to be kept: a bounded number of rows in each of many short
 * transactions. Processes take turns: whoever finds another at it leaves it to that one. Times are the database's, so
 * that a machine with a wrong clock removes nothing that is live.
 */
import { type SQL, sql } from "drizzle-orm";
import { every, type Loop } from "../platform/base/loop.ts";
import { type Database, rows } from "../platform/database/database.ts";
import type { Logger } from "../platform/observability/logger.ts";
import { removeDevices } from "./devices/remove-devices.ts";

interface Dependencies {
  readonly db: Database;
  /** Days for which history is kept; and the notifications that it is of. */
  readonly historyRetentionDays: number;
}

const dayMs = 24 * 60 * 60 * 1000;

/** Rows that one transaction removes: few enough to be done well within the time that a statement has. */
const batchSize = 5_000;
/** Notifications that one transaction looks after; each has up to some thousands of chunks. */
const notificationBatch = 100;

/** Removes a batch. @returns whether there may be more */
type Step = (tx: Database) => Promise<boolean>;

/** What to remove. What somebody is working on is left for the next round: nobody is waited for. */
function stepsOf(nowMs: number, historyRetentionDays: number): Step[] {
  const now = new Date(nowMs).toISOString();
  const kept = lowestId(Math.floor(nowMs - historyRetentionDays * dayMs));
  const batch = sql`limit ${batchSize} for update skip locked`;
  const removed = async (tx: Database, statement: SQL) => (await rows(tx, statement)).length === batchSize;
  return [
    async (tx) => {
      const expired = sql`
        select id as chosen_id from push.devices where expires_at <= ${now}::timestamptz order by expires_at ${batch}`;
      return (await removeDevices(tx, expired, "EXPIRED")) === batchSize;
    },
    (tx) =>
      removed(
        tx,
        sql`
          with chosen as (
            select user_id as chosen_user, notification_id as chosen_id from push.history
            where notification_id < ${kept}::uuid order by notification_id nulls first ${batch}
          )
          delete from push.history using chosen
          where user_id = chosen_user and notification_id = chosen_id returning 1 as one`,
      ),
    (tx) => removeNotifications(tx, kept),
    (tx) =>
      removed(
        tx,
        sql`
          with chosen as (
            select key_hash as chosen_hash from push.idempotency_keys where expires_at <= ${now}::timestamptz
            order by expires_at ${batch}
          )
          delete from push.idempotency_keys using chosen where key_hash = chosen_hash returning 1 as one`,
      ),
  ];
}

/**
 * Removes finished notifications of before `kept`: first their chunks, dead letters included, and when none is
 * left, themselves. Those that are still being sent stay, a replayed dead letter included; and those that
 * somebody's history shows.
 */
async function removeNotifications(tx: Database, kept: string): Promise<boolean> {
  const chosen = await rows<{ id: string }>(
    tx,
    sql`
      select id::text from push.notifications
      where notifications.id < ${kept}::uuid and completed_at is not null
        and not exists (select from push.history where notification_id = notifications.id)
        and not exists (
          select from push.delivery_chunks
          where notification_id = notifications.id and delivery_chunks.state in ('PENDING', 'SENDING', 'HELD'))
      order by notifications.id limit ${notificationBatch} for update skip locked`,
  );
  if (chosen.length === 0) return false;
  const ids = sql`any(${`{${chosen.map(({ id }) => id).join(",")}}`}::uuid[])`;
  const chunks = await rows(
    tx,
    sql`
      with chosen as (
        select id as chosen_id from push.delivery_chunks
        where notification_id = ${ids} and state in ('DONE', 'DEAD') limit ${batchSize} for update skip locked
      )
      delete from push.delivery_chunks using chosen where id = chosen_id returning 1 as one`,
  );
  const gone = await rows(
    tx,
    sql`
      delete from push.notifications where id = ${ids}
        and not exists (select from push.delivery_chunks where notification_id = notifications.id)
      returning 1 as one`,
  );
  return chunks.length === batchSize || gone.length === notificationBatch;
}

/** An id before those of all notifications that were accepted at this moment or later: they are UUIDv7. */
function lowestId(ms: number): string {
  const time = Math.max(0, ms).toString(16).padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-0000-0000-000000000000`;
}

/** One round: every step, until nothing is left of it, another process is at it, or it is time to stop. */
export async function cleanUp(dependencies: Dependencies, stopping?: AbortSignal): Promise<void> {
  const { db, historyRetentionDays } = dependencies;
  const [time] = await rows<{ now: number }>(
    db,
    sql`select floor(extract(epoch from now()) * 1000)::float8 as now`,
  );
  if (!time) throw new Error("the database does not know the time");
  for (const step of stepsOf(time.now, historyRetentionDays)) {
    for (let more = true; more && !stopping?.aborted; ) {
      more = await db.transaction(async (tx) => {
        const [lock] = await rows<{ mine: boolean }>(
          tx,
          sql`select pg_try_advisory_xact_lock(hashtext('push.janitor')) as mine`,
        );
        return lock?.mine === true && step(tx);
      });
    }
  }
}

/** Rounds at an interval until stopped. A round that fails is logged and tried again. */
export function startJanitor(dependencies: Dependencies & { logger: Logger; intervalSeconds: number }): Loop {
  const { logger, intervalSeconds } = dependencies;
  return every(
    intervalSeconds * 1000,
    (stopping) => cleanUp(dependencies, stopping),
    (err) => logger.warn({ err }, "the janitor could not finish its round; it tries again"),
  );
}
