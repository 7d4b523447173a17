/**
 * The step of planning: one statement writes a history entry for each user with a live device of the range at the
 * offsets, and cuts these devices into chunks.
 */
import { type SQL, sql } from "drizzle-orm";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { boolean, integer, names } from "../../platform/database/sql/readers.ts";
import { computed, onlyRow, type RowOf, selection } from "../../platform/database/sql/statements.ts";
import { entriesFor, numberOf } from "../history/history-blocks.ts";
import type { ProviderName } from "../provider-settings.ts";
import { turnsOfRange } from "../queue/chunk-states.ts";
import { deliveryChunks, devices, notifications } from "../schema.ts";
import { devicesAmong, devicesAt, type IdRange } from "./range-devices.ts";
import { hasOther, offsetIn, type Zones, zonesAt, zonesInUse } from "./zones.ts";

/** The most devices of a chunk: a worker holds as many in memory, and a crash may repeat as many messages. */
const chunkSize = 1_000;

/** What is planned by a step. */
interface PlanStep extends IdRange {
  readonly notificationId: string;
  readonly rangeNumber: number;
  /** Minutes; null in a test run. */
  readonly utcOffsets: readonly number[] | null;
  /** Whether most devices of the range are at the offsets; they are found in either way. */
  readonly isDense: boolean;
  /** The providers in use; no worker would send to devices of others. */
  readonly providers: readonly ProviderName[];
  /** The time of the step: devices that have expired by then are no recipients. */
  readonly at: Date;
}

const notification = names(notifications);
const { id, userId, provider, utcOffset, expiresAt } = names(devices);
const chunk = names(deliveryChunks);

const resultFields = {
  /** How many chunks were made. */
  chunks: computed(integer, sql`(select count(*) from made)::int`),
  /** Whether a device has come to a zone that was not among those asked for: then the step must be undone. */
  isOutdated: computed(boolean, sql`is_outdated`),
};
const result = selection(resultFields);

/** A query for the devices of a range, at the zones or of a test run's users; `minutes` is null in an unknown zone. */
function devicesOf(step: PlanStep, zones: Zones): SQL {
  const columns = sql.join([id, userId, provider, utcOffset, expiresAt], sql`, `);
  if (step.utcOffsets)
    return (step.isDense ? devicesAmong : devicesAt)(step, zonesAt(zones, step.utcOffsets), columns);
  const users = sql`
    select ${notification.userIds} from ${notifications} where ${notification.id} = ${step.notificationId}::uuid`;
  return sql`
    select ${columns}, ${offsetIn(zones)} as minutes from ${devices}
    where ${userId} = any((${users})::text[])
      and ${id} > ${step.after}::bigint and ${id} <= ${step.through}::bigint`;
}

/** The turn of the chunk with this number within the step. */
const turnOf = (rangeNumber: number, number: SQL) =>
  rangeNumber <= 0
    ? sql`${rangeNumber}::bigint`
    : sql`${rangeNumber * turnsOfRange}::bigint + least(${number} - 1, ${turnsOfRange - 1}::int)`;

/** Plans a step. It is SQL text, as its entries and chunks are of the same devices, which are read once. */
export function planRange(tx: Database, step: PlanStep, zones: Zones): Promise<RowOf<typeof resultFields>> {
  const { rangeNumber, utcOffsets, providers, at } = step;
  const notificationId = sql`${step.notificationId}::uuid`;
  const offsets = utcOffsets && sql`${arrayLiteral(utcOffsets)}::smallint[]`;
  const order = sql`part_number, ${utcOffset}, ${provider}`;
  return onlyRow(
    tx,
    result,
    sql`
      with recursive ${zonesInUse},
      found as materialized (
        select ${id}, ${provider}, coalesce(minutes, ${utcOffset}) as ${utcOffset}, ${userId} as person, known_number
        from (${devicesOf(step, zones)}) as device
        left join lateral ${numberOf(names(devices, "device").userId)}
        where ${provider} = any(${arrayLiteral(providers)}::text[])
          and ${expiresAt} > ${at.toISOString()}::timestamptz
          ${offsets ? sql`and (minutes is not null or ${utcOffset} = any(${offsets}))` : sql``}
      ),
      recipient as (select person, ${utcOffset} as minutes, ${id} as device, known_number from found),
      ${entriesFor(sql`recipient`, notificationId)},
      made as (
        insert into ${deliveryChunks} (${chunk.notificationId}, ${chunk.provider}, ${chunk.utcOffset}, ${chunk.turn},
          ${chunk.deviceIds}, ${chunk.planned})
        select ${notificationId}, ${provider}, ${utcOffset},
          ${turnOf(rangeNumber, sql`row_number() over (order by ${order})`)}, piece, cardinality(piece)
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
        order by ${order}
        returning 1
      )
      select ${result} from (select ${utcOffsets ? hasOther(zones) : sql`false`} as is_outdated) as checked`,
  );
}
