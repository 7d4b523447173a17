/**
 * The second half of planning: walks the devices in the order of their ids, visits each once, and cuts those at the
 * notification's offsets into chunks. It ends at the last device that existed when it began.
 */
import { sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { boolean, listOf, oneOf, text } from "../../platform/database/readers.ts";
import { computed, rows, selection } from "../../platform/database/statements.ts";
import { providerNames } from "../provider-settings.ts";
import { deliveryChunks, devices, history, notifications } from "../schema.ts";
import type { WaitingChunk } from "./chunk-jobs.ts";
import { isServed, type PlanningStep } from "./record-history.ts";
import { offsetIn } from "./zone-offsets.ts";

/** The most devices of a chunk: a worker holds as many in memory, and a crash may repeat as many messages. */
const chunkSize = 1_000;

/** A device renewed this long before acceptance still counts as renewed after it: clocks of machines differ. */
const clockMargin = "5 minutes";

interface CutChunks {
  readonly chunks: readonly WaitingChunk[];
  /** Number of the notification's chunks that came before these. */
  readonly first: number;
  /** Whether planning is finished. */
  readonly isDone: boolean;
}

const notification = names(notifications);
const device = names(devices);
const entry = names(history);
const chunk = names(deliveryChunks);
/** The notification's row as the statement writes it; `n` is the row as it was before. */
const planned = names(notifications, "planning");

const madeChunk = selection({
  chunkId: chunk.id,
  provider: computed(oneOf(providerNames), chunk.provider),
  jobId: computed(text, chunk.jobId),
});
const step = selection({
  chunks: planned.chunks,
  isDone: computed(boolean, sql`is_last`),
  made: computed(
    listOf(madeChunk),
    sql`coalesce((select jsonb_agg(to_jsonb(made) order by "chunkId") from made), '[]')`,
  ),
});

/** Cuts the next devices of the notification, which is locked, into chunks. */
export async function cutChunks(tx: Database, planning: PlanningStep): Promise<CutChunks> {
  const { notificationId, isTest, window, at } = planning;
  const limit = sql.raw(String(window));
  const { id, userId, provider, utcOffset, expiresAt, renewedAt } = device;
  const { plannedThrough, acceptedAt, userIds, utcOffsets } = notification;
  const offset = offsetIn(planning.zones);
  const seenColumns = sql`${id}, ${userId}, ${provider}, ${offset} as ${utcOffset}, ${expiresAt}, ${renewedAt}`;
  // A test run finds its few devices by the index of users. Otherwise all devices are visited, in the order of ids.
  const seen = isTest
    ? sql`select ${seenColumns}, ${isServed(planning)} as is_target
          from ${devices} where ${userId} = any((select ${userIds} from n)::text[])`
    : sql`select ${seenColumns},
            ${offset} = any((select ${utcOffsets} from n)::smallint[]) and ${isServed(planning)} as is_target
          from ${devices} where ${id} > (select ${plannedThrough} from n) order by ${id} limit ${limit}`;
  const isRecipient = sql`is_target and ${expiresAt} > ${at} and ${id} <= (select until from n)`;
  const [done] = await rows(
    tx,
    step,
    sql`
      with n as materialized (
        select ${utcOffsets}, ${userIds}, ${plannedThrough}, ${acceptedAt},
          coalesce(${notification.planUntil}, (select max(${id}) from ${devices}), 0) as until
        from ${notifications} where ${notification.id} = ${notificationId}::uuid
      ),
      grouped as materialized (
        select ${utcOffset}, ${provider}, count(*) as seen, max(${id}) as last_id,
          array_agg(${id}) filter (where ${isRecipient}) as ids,
          array_agg(${userId}) filter (where ${isRecipient}
            and ${renewedAt} > (select ${acceptedAt} from n) - ${clockMargin}::interval) as renewed
        from (${seen}) as device group by ${utcOffset}, ${provider}
      ),
      entries as (
        insert into ${history} (${entry.userId}, ${entry.notificationId}, ${entry.viewed})
        select distinct recipient, ${notificationId}::uuid, false from grouped cross join unnest(renewed) as recipient
        order by recipient
        on conflict do nothing
        returning 1
      ),
      made as (
        insert into ${deliveryChunks} (${chunk.notificationId}, ${chunk.provider}, ${chunk.utcOffset}, ${chunk.state},
          ${chunk.deviceIds}, ${chunk.planned}, ${chunk.sent}, ${chunk.failed}, ${chunk.dropped}, ${chunk.dead},
          ${chunk.attempt}, ${chunk.retries}, ${chunk.jobId}, ${chunk.updatedAt})
        select ${notificationId}::uuid, ${provider}, ${utcOffset}, 'PENDING', part, cardinality(part), 0, 0, 0, 0, 0, 0,
          gen_random_uuid(), ${at}
        from (
          select *, cardinality(ids) as size, (cardinality(ids) + ${chunkSize}::int - 1) / ${chunkSize}::int as parts
          from grouped where ids is not null
        ) as group_of
        cross join lateral generate_series(0, parts - 1) as turn
        cross join lateral (
          select ids[turn * size / parts + 1 : (turn + 1) * size / parts] as part
        ) as cut
        order by turn, ${utcOffset}, ${provider}
        returning ${madeChunk}
      ),
      extent as (
        select coalesce(sum(seen), 0) < ${limit} or max(last_id) >= (select until from n) or ${isTest}::boolean as is_last,
          max(last_id) as last_id
        from grouped
      )
      update ${notifications} as planning
      set ${notification.planUntil} = n.until,
        ${plannedThrough} = case when is_last then n.until else last_id end,
        ${notification.plannedAt} = case when is_last then ${at} end,
        ${notification.state} = case when is_last then 'SENDING' else ${planned.state} end,
        ${notification.recipients} = ${planned.recipients} + (select count(*) from entries)::int,
        ${notification.chunks} = ${planned.chunks} + (select count(*) from made)::int
      from n, extent
      where ${planned.id} = ${notificationId}::uuid
      returning ${step}`,
  );
  if (!done) throw new Error("the notification that is planned is missing, although it is locked");
  const made = done.made.map(({ chunkId, provider, jobId }) => ({ id: chunkId, provider, jobId }));
  return { chunks: made, first: done.chunks - made.length, isDone: done.isDone };
}
