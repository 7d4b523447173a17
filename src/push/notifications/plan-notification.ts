/**
 * Planning: finding a notification's recipients and cutting its devices into chunks that are sent together. It
 * walks along the ids of the devices, each once, in steps; a step is one short transaction that writes history,
 * chunks and their jobs, and how far it has come. The promises:
 *
 * 1. A device is planned once, whatever it changes meanwhile, whoever dies, and however many plan at once: a step
 *    begins where the last one that was committed has ended.
 * 2. A user gets one history entry, however many devices, and none after being forgotten.
 * 3. It ends: devices that are registered after it began are not followed.
 */
import { setImmediate } from "node:timers/promises";
import { sql } from "drizzle-orm";
import type { Clock } from "../../platform/clock.ts";
import { type Database, rows } from "../../platform/database.ts";
import type { Job, Jobs } from "../../platform/jobs.ts";
import { type PlanJob, planQueue } from "../database.ts";
import { enqueueChunks, type WaitingChunk } from "./chunk-jobs.ts";
import { completeIfDone } from "./complete-notification.ts";
import { lockNotification } from "./lock-notification.ts";

/** Devices that one step looks at: few enough that who waits for the step does not notice. */
const defaultWindow = 32_000;

/** Devices of a chunk at most: what a worker has in hand, and what a crash may send again. */
const chunkSize = 1_000;

interface Dependencies {
  readonly db: Database;
  readonly jobs: Pick<Jobs, "enqueue" | "complete">;
  readonly clock: Clock;
  /** Devices that one step looks at. */
  readonly window?: number;
}

export interface Planner {
  /** Handles the jobs of the queue `plan`. */
  handle(job: Job<PlanJob>, stopping: AbortSignal): Promise<void>;
}

export function createPlanner({ db, jobs, clock, window = defaultWindow }: Dependencies): Planner {
  /** One step. @returns whether it ended the job: all is planned, or is not to be */
  function step(job: Job<PlanJob>): Promise<boolean> {
    return db.transaction(async (tx) => {
      const { notificationId } = job.data;
      const notification = await lockNotification(tx, notificationId);
      if (notification?.state !== "PLANNING") {
        // Paused, cancelled, or planned by somebody else. Who resumes it makes a new job.
        await jobs.complete(tx, planQueue, job);
        return true;
      }
      // Nobody is forgotten meanwhile. The lock must be had before the snapshot of the next statement is made.
      await tx.execute(sql`select pg_advisory_xact_lock_shared(hashtext('push.plan'))`);
      const { isTest } = notification;
      const { chunks, first, isLast } = await planWindow(tx, {
        notificationId,
        isTest,
        window,
        now: clock.now(),
      });
      await enqueueChunks(tx, jobs, chunks, { first, isTest });
      if (isLast) await jobs.complete(tx, planQueue, job);
      return isLast;
    });
  }

  /** Leaves the rest to another process, now rather than when this one is found dead. */
  function handOver(job: Job<PlanJob>): Promise<void> {
    return db.transaction(async (tx) => {
      await jobs.complete(tx, planQueue, job);
      await jobs.enqueue(tx, planQueue, [{ data: job.data, priority: job.priority }]);
    });
  }

  return {
    async handle(job, stopping) {
      while (!(await step(job))) {
        if (stopping.aborted) return handOver(job);
        // On the embedded database a step keeps the process to itself: others have their turn in between.
        await setImmediate();
      }
      // If this fails, the sweep does it.
      await completeIfDone(db, job.data.notificationId, clock).catch(() => undefined);
    },
  };
}

interface Window {
  readonly notificationId: string;
  readonly isTest: boolean;
  /** Devices to look at. */
  readonly window: number;
  /** Milliseconds since the epoch: devices that have expired by then get nothing. */
  readonly now: number;
}

/** The next devices of the notification, which is locked. @returns the chunks, and how many came before them */
async function planWindow(
  tx: Database,
  { notificationId, isTest, window, now }: Window,
): Promise<{ chunks: WaitingChunk[]; first: number; isLast: boolean }> {
  const at = sql`${new Date(now).toISOString()}::timestamptz`;
  const audience = isTest
    ? sql`d.user_id = any((select user_ids from n)::text[])`
    : sql`d.utc_offset = any((select utc_offsets from n)::smallint[])`;
  // By users few devices are looked at, found by their index; by offsets all of them are, in order.
  const [among, isRecipient] = isTest ? [audience, sql`true`] : [sql`true`, audience];
  const limit = sql.raw(String(window));
  const [planned] = await rows<{ chunks: number; isLast: boolean; made: WaitingChunk[] }>(
    tx,
    sql`
      with n as materialized (
        select utc_offsets, user_ids, planned_through,
          coalesce(plan_until, (select max(id) from push.devices), 0) as until
        from push.notifications where id = ${notificationId}::uuid
      ),
      next as (
        select * from push.devices d
        where d.id > (select planned_through from n) and ${among}
        order by d.id limit ${limit}
      ),
      seen as materialized (
        -- The end is looked at here: with two bounds that it does not know, PostgreSQL takes the range for a small
        -- one, and may read and sort all of it.
        select d.id, d.user_id, d.provider, d.utc_offset, d.expires_at > ${at} and ${isRecipient} as is_recipient
        from next d where d.id <= (select until from n)
      ),
      entries as (
        insert into push.history (user_id, notification_id, viewed)
        select user_id, ${notificationId}::uuid, false
        from (select distinct user_id from seen where is_recipient) as users
        order by user_id
        on conflict do nothing
        returning 1
      ),
      made as (
        insert into push.delivery_chunks (notification_id, provider, utc_offset, state, device_ids, planned, sent,
          failed, dropped, dead, attempt, retries, updated_at)
        select ${notificationId}::uuid, provider, utc_offset, 'PENDING', part, cardinality(part), 0, 0, 0, 0, 0, 0,
          ${at}
        from (
          select utc_offset, provider, array_agg(id) as ids, count(*) as devices,
            (count(*) + ${chunkSize}::int - 1) / ${chunkSize}::int as parts
          from seen where is_recipient group by utc_offset, provider
        ) as alike
        cross join lateral generate_series(0, parts - 1) as turn
        cross join lateral (
          select ids[turn * devices / parts + 1 : (turn + 1) * devices / parts] as part
        ) as cut
        order by turn, utc_offset, provider
        returning id, provider
      ),
      extent as (select count(*) < ${limit} as is_last, max(id) as last_id from seen)
      update push.notifications as planned
      set plan_until = n.until,
        planned_through = case when is_last then n.until else last_id end,
        planned_at = case when is_last then ${at} end,
        state = case when is_last then 'SENDING' else state end,
        recipients = recipients + (select count(*) from entries)::int,
        chunks = chunks + (select count(*) from made)::int
      from n, extent
      where planned.id = ${notificationId}::uuid
      returning chunks, is_last as "isLast",
        coalesce((select jsonb_agg(to_jsonb(made) order by id) from made), '[]') as made`,
  );
  if (!planned) throw new Error("the notification that is planned has gone, although it is locked");
  const { chunks, isLast, made } = planned;
  return { chunks: made, first: chunks - made.length, isLast };
}
