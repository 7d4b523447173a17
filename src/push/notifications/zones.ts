/**
 * Zones of devices, each with an id that their apps have given: the name of a time zone, or else minutes east of UTC.
 * The offset of a time zone is that of when the notification was accepted, so that it is the same in all steps.
 */
import { setImmediate } from "node:timers/promises";
import { type SQL, sql } from "drizzle-orm";
import { LRUCache } from "lru-cache";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names, text } from "../../platform/database/sql/readers.ts";
import { computed, rows, selection } from "../../platform/database/sql/statements.ts";
import { zoneTime } from "../devices/time-zone.ts";
import { devices, zoneIdOf } from "../schema.ts";

const { timeZone, utcOffset } = names(devices);

/** The zone id of the device in a row. */
export const deviceZoneId = zoneIdOf(timeZone, utcOffset);

/** The zones that devices are in, and their offsets at a certain moment. */
export interface Zones {
  /** Minutes east of UTC, by time zone. A time zone that this version of Node.js does not know is missing. */
  readonly offsets: ReadonlyMap<string, number>;
  /** The ids of all zones in use, the unknown time zones included. */
  readonly ids: readonly string[];
}

/** An item of `with recursive`: the zones in use. The query jumps from zone to zone in the index. */
export const zonesInUse: SQL = (() => {
  const next = (condition: SQL) => sql`
    select ${deviceZoneId} as zone_id from ${devices} ${condition} order by ${deviceZoneId} limit 1`;
  return sql`
    in_use (zone_id) as (
      (${next(sql``)})
      union all
      select (${next(sql`where ${deviceZoneId} > in_use.zone_id`)}) from in_use where in_use.zone_id is not null
    )`;
})();

const used = selection({ id: computed(text, sql`in_use.zone_id`) });

/** Creates a cache of the offsets of a few notifications: the first look-up of a zone takes up to a millisecond. */
export function createZones(): (db: Database, acceptedAt: number) => Promise<Zones> {
  const remembered = new LRUCache<number, Map<string, number>>({ max: 20 });
  return async (db, acceptedAt) => {
    const statement = sql`
      with recursive ${zonesInUse} select ${used} from in_use where in_use.zone_id is not null`;
    const ids = (await rows(db, used, statement)).map(({ id }) => id);
    const offsets = remembered.get(acceptedAt) ?? new Map<string, number>();
    remembered.set(acceptedAt, offsets);
    for (const id of ids) {
      if (offsets.has(id) || isOffset(id)) continue;
      const time = zoneTime(id, acceptedAt);
      if (time) offsets.set(id, time.utcOffset);
      // Other work runs in between.
      await setImmediate();
    }
    return { offsets, ids };
  };
}

const isOffset = (zoneId: string): boolean => /^-?\d+$/.test(zoneId);

/** A zone, and the offset of all its devices; null in an unknown time zone, whose devices have offsets of their own. */
export interface Zone {
  readonly id: string;
  readonly utcOffset: number | null;
}

/** The zones at one of the offsets, and the unknown time zones. */
export function zonesAt({ offsets, ids }: Zones, utcOffsets: readonly number[]): Zone[] {
  return ids
    .map((id) => ({ id, utcOffset: isOffset(id) ? Number(id) : (offsets.get(id) ?? null) }))
    .filter(({ utcOffset }) => utcOffset === null || utcOffsets.includes(utcOffset));
}

/** Condition in a statement with {@link zonesInUse}: a device has come to a zone that nobody was in before. */
export function hasOther({ ids }: Zones): SQL {
  return sql`exists (select from in_use where in_use.zone_id <> all(${arrayLiteral(ids)}::text[]))`;
}
