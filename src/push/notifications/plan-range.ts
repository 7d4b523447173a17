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
import { deliveryChunks, devices } from "../schema.ts";
import { devicesAmong, devicesAt, type IdRange } from "./range-devices.ts";
import { hasOther, type Zones, zonesAt, zonesInUse } from "./zones.ts";

/** The most devices of a chunk: a worker holds as many in memory, and a crash may repeat as many messages. */
const chunkSize = 1_000;

/** What is planned by a step. */
export interface PlanStep extends IdRange {
  readonly notificationId: string;
  readonly rangeNumber: number;
  /** The providers in use; no worker would send to devices of others. */
  readonly providers: readonly ProviderName[];
  /** The time of the step: devices that have expired by then are no recipients. */
  readonly at: Date;
}

interface OffsetsStep extends PlanStep {
  /** Minutes. */
  readonly utcOffsets: readonly number[];
  /** Whether most devices of the range are at the offsets; they are found in either way. */
  readonly isDense: boolean;
}

const { id, userId, provider, utcOffset, expiresAt } = names(devices);
const chunk = names(deliveryChunks);

const plannedFields = {
  /** How many chunks were made. */
  chunks: computed(integer, sql`(select count(*) from made)::int`),
  /** The recipients that were found; 0 where their entries tell. */
  users: computed(integer, sql`step_users::int`),
  /** Whether a device has come to a zone that was not among those asked for: then the step must be undone. */
  isOutdated: computed(boolean, sql`is_outdated`),
};
export type Planned = RowOf<typeof plannedFields>;
const planned = selection(plannedFields);

/** The turn of the chunk with this number within the step. */
const turnOf = (rangeNumber: number, number: SQL) =>
  rangeNumber <= 0
    ? sql`${rangeNumber}::bigint`
    : sql`${rangeNumber * turnsOfRange}::bigint + least(${number} - 1, ${turnsOfRange - 1}::int)`;

/** `made`, for a `with` list after `found`, which has devices with their offset: cuts them into chunks. */
export function chunksOfFound({ notificationId, rangeNumber }: PlanStep): SQL {
  const order = sql`part_number, ${utcOffset}, ${provider}`;
  return sql`
      made as (
        insert into ${deliveryChunks} (${chunk.notificationId}, ${chunk.provider}, ${chunk.utcOffset}, ${chunk.turn},
          ${chunk.deviceIds}, ${chunk.planned})
        select ${notificationId}::uuid, ${provider}, ${utcOffset},
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
      )`;
}

/** Conditions on a row of devices: somebody sends to it. */
export const isLive = ({ providers, at }: Pick<PlanStep, "providers" | "at">): SQL => sql`
  ${provider} = any(${arrayLiteral(providers)}::text[])
          and ${expiresAt} > ${at.toISOString()}::timestamptz`;

/**
 * Runs a step.
 * @param items of a `with` list, the last of which is {@link chunksOfFound}
 */
export const runStep = (
  tx: Database,
  items: SQL,
  { users, isOutdated }: { readonly users: SQL; readonly isOutdated: SQL },
): Promise<Planned> =>
  onlyRow(
    tx,
    planned,
    sql`
      with recursive ${items}
      select ${planned} from (select ${users} as step_users, ${isOutdated} as is_outdated) as checked`,
  );

/** Plans a step. It is SQL text, as its entries and chunks are of the same devices, which are read once. */
export function planRange(tx: Database, step: OffsetsStep, zones: Zones): Promise<Planned> {
  const columns = sql.join([id, userId, provider, utcOffset, expiresAt], sql`, `);
  const found = (step.isDense ? devicesAmong : devicesAt)(step, zonesAt(zones, step.utcOffsets), columns);
  return runStep(
    tx,
    sql`
      ${zonesInUse},
      found as materialized (
        select ${id}, ${provider}, coalesce(minutes, ${utcOffset}) as ${utcOffset}, ${userId} as person, known_number
        from (${found}) as device
        left join lateral ${numberOf(names(devices, "device").userId)}
        where ${isLive(step)}
          and (minutes is not null or ${utcOffset} = any(${arrayLiteral(step.utcOffsets)}::smallint[]))
      ),
      recipient as (select person, ${utcOffset} as minutes, ${id} as device, known_number from found),
      ${entriesFor(sql`recipient`, sql`${step.notificationId}::uuid`)},
      ${chunksOfFound(step)}`,
    { users: sql`0`, isOutdated: hasOther(zones) },
  );
}
