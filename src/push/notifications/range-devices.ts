/**
 * The devices of a range at certain zones, in two ways, and where a step ends that reads them. Within {@link
 * ignorePageCosts} the queries read no other devices, whatever the statistics say.
 */
import { type SQL, sql } from "drizzle-orm";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { integer, names, nullable, number } from "../../platform/database/sql/readers.ts";
import { computed, onlyRow, selection } from "../../platform/database/sql/statements.ts";
import { devices } from "../schema.ts";
import { deviceZoneId, type Zone } from "./zones.ts";

const { id } = names(devices);

/** Ids of devices: greater than `after`, and at most `through`. */
export interface IdRange {
  readonly after: number;
  readonly through: number;
}

/** A condition on a row of devices: it is in the range. */
export const isIn = ({ after, through }: IdRange) =>
  sql`${id} > ${after}::bigint and ${id} <= ${through}::bigint`;

/** An item of a `from` list: the zones and their offsets. */
function wanted(zones: readonly Zone[]): SQL {
  const offsets = sql.raw(
    `array[${zones.map(({ utcOffset }) => utcOffset ?? "null").join(", ")}]::smallint[]`,
  );
  return sql`unnest(${arrayLiteral(zones.map((zone) => zone.id))}::text[], ${offsets}) as wanted (zone_id, minutes)`;
}

/**
 * Runs an action in which PostgreSQL reads tables by their indexes, chosen by the number of rows alone.
 * @param tx a transaction
 */
export async function ignorePageCosts<T>(tx: Database, action: () => Promise<T>): Promise<T> {
  const set = (toggle: SQL, cost: SQL) =>
    tx.execute(sql`
      select set_config('enable_seqscan', ${toggle}, true), set_config('enable_bitmapscan', ${toggle}, true),
        set_config('random_page_cost', ${cost}, true), set_config('seq_page_cost', ${cost}, true)`);
  await set(sql`'off'`, sql`'0'`);
  const result = await action();
  await set(sql`null`, sql`null`);
  return result;
}

/**
 * A query for the columns of the range's devices at the zones, and `minutes`, the offset of their zone. The further
 * comparisons of the zone exclude nothing, but make PostgreSQL use the index of zones.
 */
export function devicesAt(range: IdRange, zones: readonly Zone[], columns: SQL): SQL {
  return sql`
    select device.*, wanted.minutes from ${wanted(zones)}
    cross join lateral (
      select ${columns} from ${devices}
      where ${deviceZoneId} = wanted.zone_id and ${isIn(range)}
        and ${deviceZoneId} >= wanted.zone_id and ${deviceZoneId} <= wanted.zone_id offset 0
    ) as device`;
}

/** A query for the same devices that reads all of the range: faster if most of its devices are at the zones. */
export function devicesAmong(range: IdRange, zones: readonly Zone[], columns: SQL): SQL {
  return sql`
    select device.*, wanted.minutes from ${wanted(zones)}
    join (
      select ${columns}, ${deviceZoneId} as zone_id from ${devices} where ${isIn(range)} offset 0
    ) as device on device.zone_id = wanted.zone_id`;
}

const first = selection({ id: computed(nullable(number), sql`min(found.device)::float8`) });

/** The id of the range's first device at the zones. */
async function firstDevice(tx: Database, range: IdRange, zones: readonly Zone[]): Promise<number | null> {
  // What follows in the index may be at another zone, or beyond the range.
  const ofEach = sql`
    select next.device from ${wanted(zones)}
    cross join lateral (
      select ${deviceZoneId} as zone_id, ${id} as device from ${devices}
      where (${deviceZoneId}, ${id}) > (wanted.zone_id, ${range.after}::bigint)
      order by ${deviceZoneId}, ${id} limit 1
    ) as next
    where next.zone_id = wanted.zone_id and next.device <= ${range.through}::bigint`;
  return (await onlyRow(tx, first, sql`select ${first} from (${ofEach}) as found`)).id;
}

const counted = selection({ devices: computed(integer, sql`count(*)::int`) });

/** Whether a range has more devices at the zones than a step may have. */
async function exceeds(tx: Database, range: IdRange, zones: readonly Zone[], size: number): Promise<boolean> {
  const some = sql`select 1 from (${devicesAt(range, zones, id)}) as device limit ${size + 1}::int`;
  return (await onlyRow(tx, counted, sql`select ${counted} from (${some}) as found`)).devices > size;
}

/** A step's devices divided by this are looked at on either side, to see how many of the ids are at the zones. */
const sample = 64;

/** Whether a range that one step can read begins and ends with devices of which more than half are at the zones. */
export async function isDense(
  tx: Database,
  range: IdRange,
  zones: readonly Zone[],
  size: number,
): Promise<boolean> {
  const { after, through } = range;
  const few = Math.ceil(size / sample);
  return (
    through - after <= size &&
    (await exceeds(tx, { after, through: after + 2 * few }, zones, few)) &&
    (await exceeds(tx, { after: through - 2 * few, through }, zones, few))
  );
}

/**
 * Finds where to split a range that has more devices than a step may have, so that the first part has as many or a few
 * less: from the first device on, ever wider parts are tried.
 * @param size the most devices of a step
 * @returns the last id of the first part; undefined: the range need not be split
 */
export async function endOfStep(
  tx: Database,
  { after, through }: IdRange,
  zones: readonly Zone[],
  size: number,
): Promise<number | undefined> {
  if (zones.length === 0 || through - after <= size) return undefined;
  const firstId = await firstDevice(tx, { after, through }, zones);
  if (firstId === null) return undefined;
  const before = firstId - 1;
  const next = before + size;
  if (next < through && (await isDense(tx, { after: before, through: next }, zones, size))) return next;
  for (let end = next; end < through; ) {
    const wider = Math.min(through, 2 * end - before);
    if (await exceeds(tx, { after, through: wider }, zones, size)) return end;
    end = wider;
  }
  return undefined;
}
