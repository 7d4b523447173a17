/**
 * The second half of planning: it walks along the ids of the devices, each once, and cuts those at the offsets into
 * chunks that are sent together. It ends at the last device that there was when it began.
 */
import { sql } from "drizzle-orm";
import { type Database, rows } from "../../platform/database/database.ts";
import type { WaitingChunk } from "./chunk-jobs.ts";
import { isServed, type PlanningStep } from "./record-history.ts";

/** Devices of a chunk at most: what a worker has in hand, and what a crash may send again. */
const chunkSize = 1_000;

/** Renewed within this time before acceptance counts as renewed since: clocks of machines differ. */
const clockMargin = "5 minutes";

interface CutChunks {
  readonly chunks: readonly WaitingChunk[];
  /** How many of the notification's chunks came before them. */
  readonly first: number;
  /** Whether all is planned. */
  readonly isDone: boolean;
}

/** Cuts the next devices of the notification, which is locked, into chunks. */
export async function cutChunks(tx: Database, step: PlanningStep): Promise<CutChunks> {
  const { notificationId, isTest, window, at } = step;
  const limit = sql.raw(String(window));
  // By users few devices are looked at, found by their index; by offsets all of them are, in order.
  const seen = isTest
    ? sql`select id, user_id, provider, utc_offset, expires_at, renewed_at, ${isServed(step)} as is_asked
          from push.devices where user_id = any((select user_ids from n)::text[])`
    : sql`select id, user_id, provider, utc_offset, expires_at, renewed_at,
            utc_offset = any((select utc_offsets from n)::smallint[]) and ${isServed(step)} as is_asked
          from push.devices where id > (select planned_through from n) order by id limit ${limit}`;
  const isRecipient = sql`is_asked and expires_at > ${at} and id <= (select until from n)`;
  const [planned] = await rows<{ chunks: number; isDone: boolean; made: WaitingChunk[] }>(
    tx,
    sql`
      with n as materialized (
        select utc_offsets, user_ids, planned_through, accepted_at,
          coalesce(plan_until, (select max(id) from push.devices), 0) as until
        from push.notifications where id = ${notificationId}::uuid
      ),
      alike as materialized (
        select utc_offset, provider, count(*) as seen, max(id) as last_id,
          array_agg(id) filter (where ${isRecipient}) as ids,
          array_agg(user_id) filter (where ${isRecipient}
            and renewed_at > (select accepted_at from n) - ${clockMargin}::interval) as renewed
        from (${seen}) as device group by utc_offset, provider
      ),
      entries as (
        insert into push.history (user_id, notification_id, viewed)
        select distinct user_id, ${notificationId}::uuid, false from alike cross join unnest(renewed) as user_id
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
          select *, cardinality(ids) as devices, (cardinality(ids) + ${chunkSize}::int - 1) / ${chunkSize}::int as parts
          from alike where ids is not null
        ) as group_of
        cross join lateral generate_series(0, parts - 1) as turn
        cross join lateral (
          select ids[turn * devices / parts + 1 : (turn + 1) * devices / parts] as part
        ) as cut
        order by turn, utc_offset, provider
        returning id, provider
      ),
      extent as (
        select coalesce(sum(seen), 0) < ${limit} or max(last_id) >= (select until from n) or ${isTest}::boolean as is_last,
          max(last_id) as last_id
        from alike
      )
      update push.notifications as planned
      set plan_until = n.until,
        planned_through = case when is_last then n.until else last_id end,
        planned_at = case when is_last then ${at} end,
        state = case when is_last then 'SENDING' else state end,
        recipients = recipients + (select count(*) from entries)::int,
        chunks = chunks + (select count(*) from made)::int
      from n, extent
      where planned.id = ${notificationId}::uuid
      returning chunks, is_last as "isDone",
        coalesce((select jsonb_agg(to_jsonb(made) order by id) from made), '[]') as made`,
  );
  if (!planned) throw new Error("the notification that is planned has gone, although it is locked");
  const { chunks, isDone, made } = planned;
  return { chunks: made, first: chunks - made.length, isDone };
}
