/**
 * The step of planning: one statement writes a history entry for each user who has a live device of the range at one of
 * the offsets, and cuts these devices into chunks. Both are committed at once, so every user who is sent a notification
 * has it in the history, and every entry is of a notification that is sent.
 */
import { type SQL, sql } from "drizzle-orm";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { boolean, listOf, oneOf, text } from "../../platform/database/sql/readers.ts";
import { computed, rows, selection } from "../../platform/database/sql/statements.ts";
import { entriesFor, numberOf } from "../history/history-blocks.ts";
import { type ProviderName, providerNames } from "../provider-settings.ts";
import { deliveryChunks, devices, notifications } from "../schema.ts";
import type { WaitingChunk } from "./chunk-jobs.ts";
import { hasUnknown, offsetIn, type Places, placesAt, placesInUse } from "./places.ts";
import { devicesAmong, devicesAt, type PlanRange } from "./plan-ranges.ts";

/** The most devices of a chunk: a worker holds as many in memory, and a crash may repeat as many messages. */
const chunkSize = 1_000;

/** The result of a step. */
export interface Planned {
  readonly chunks: readonly WaitingChunk[];
  /** Whether a device has come to a place that was not among those asked for: then the step must be undone. */
  readonly isOutdated: boolean;
}

const notification = names(notifications);
const { id, userId, provider, utcOffset, expiresAt } = names(devices);
const chunk = names(deliveryChunks);

const madeChunk = selection({
  id: computed(text, sql`${chunk.id}::text`),
  provider: computed(oneOf(providerNames), chunk.provider),
  jobId: computed(text, chunk.jobId),
});
const result = selection({
  made: computed(
    listOf(madeChunk),
    sql`coalesce((select jsonb_agg(to_jsonb(made) order by ${chunk.id}::bigint) from made), '[]')`,
  ),
  isOutdated: computed(boolean, sql`is_outdated`),
});

/** A query for the devices of a range, at the places or of a test run's users; `minutes` is null in an unknown zone. */
function devicesOf(range: PlanRange, places: Places, isDense: boolean): SQL {
  const inRange = sql`${id} > ${range.after}::bigint and ${id} <= ${range.through}::bigint`;
  const users = sql`
    select ${notification.userIds} from ${notifications} where ${notification.id} = ${range.notificationId}::uuid`;
  const columns = sql.join([id, userId, provider, utcOffset, expiresAt], sql`, `);
  const at = range.utcOffsets && placesAt(places, range.utcOffsets);
  if (at) return isDense ? devicesAmong(range, at, columns) : devicesAt(range, at, columns);
  return sql`
    select ${columns}, ${offsetIn(places)} as minutes from ${devices}
    where ${userId} = any((${users})::text[]) and ${inRange}`;
}

/**
 * Plans the range.
 * @param providers the providers in use; no worker would send to devices of others
 * @param at the time of the step: devices that have expired by then are no recipients
 * @param isDense whether most devices of the range are at the offsets
 */
export async function planRange(
  tx: Database,
  range: PlanRange,
  places: Places,
  {
    providers,
    at,
    isDense = false,
  }: { readonly providers: readonly ProviderName[]; readonly at: Date; readonly isDense?: boolean },
): Promise<Planned> {
  const notificationId = sql`${range.notificationId}::uuid`;
  const now = sql`${at.toISOString()}::timestamptz`;
  const offsets = range.utcOffsets && sql`${arrayLiteral(range.utcOffsets)}::smallint[]`;
  const [done] = await rows(
    tx,
    result,
    sql`
      with recursive ${placesInUse},
      found as materialized (
        select ${id}, ${provider}, coalesce(minutes, ${utcOffset}) as ${utcOffset}, ${userId} as person, known_number
        from (${devicesOf(range, places, isDense)}) as device
        left join lateral ${numberOf(names(devices, "device").userId)}
        where ${provider} = any(${arrayLiteral(providers)}::text[]) and ${expiresAt} > ${now}
          ${offsets ? sql`and (minutes is not null or ${utcOffset} = any(${offsets}))` : sql``}
      ),
      recipient as (select person, ${utcOffset} as minutes, ${id} as device, known_number from found),
      ${entriesFor(sql`recipient`, notificationId)},
      made as (
        insert into ${deliveryChunks} (${chunk.notificationId}, ${chunk.provider}, ${chunk.utcOffset}, ${chunk.state},
          ${chunk.deviceIds}, ${chunk.planned}, ${chunk.sent}, ${chunk.failed}, ${chunk.dropped}, ${chunk.dead},
          ${chunk.fence}, ${chunk.retries}, ${chunk.jobId}, ${chunk.updatedAt})
        select ${notificationId}, ${provider}, ${utcOffset}, 'PENDING', piece, cardinality(piece), 0, 0, 0, 0, 0, 0,
          gen_random_uuid(), ${now}
        from (
          select *, cardinality(ids) as size, (cardinality(ids) + ${chunkSize}::int - 1) / ${chunkSize}::int as parts
          from (
            select ${utcOffset}, ${provider}, array_agg(${id}) as ids
            from found group by ${utcOffset}, ${provider}
          ) as grouped
        ) as group_of
        cross join lateral generate_series(0, parts - 1) as part_number
        cross join lateral (
          select ids[part_number * size / parts + 1 : (part_number + 1) * size / parts] as piece
        ) as cut
        order by part_number, ${utcOffset}, ${provider}
        returning ${madeChunk}
      )
      select ${result} from (select ${range.utcOffsets ? hasUnknown(places) : sql`false`} as is_outdated) as checked`,
  );
  if (!done) throw new Error("a step of planning returned no row");
  const { made, isOutdated } = done;
  const chunks = made.map(({ id, provider, jobId }) => ({ id: Number(id), provider, jobId }));
  return { chunks, isOutdated };
}
