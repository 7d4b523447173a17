/**
 * Places of devices, as their apps have given them: the name of a time zone, or else minutes east of UTC. The index
 * `devices_place` has the devices of a place in the order of their ids.
 *
 * The offset of a zone is its offset when the notification was accepted, so that summer time changes no row, and no
 * device changes its offset between two steps of planning.
 */
import { setImmediate } from "node:timers/promises";
import { type SQL, sql } from "drizzle-orm";
import { LRUCache } from "lru-cache";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { text } from "../../platform/database/sql/readers.ts";
import { computed, rows, selection } from "../../platform/database/sql/statements.ts";
import { zoneTime } from "../devices/time-zone.ts";
import { devices, placeOf } from "../schema.ts";

const { timeZone, utcOffset } = names(devices);

/** The place of the device in a row. */
export const devicePlace = placeOf(timeZone, utcOffset);

/** The places that devices are in, and their offsets at a certain moment. */
export interface Places {
  /** Minutes east of UTC, by time zone. A zone that this version of Node.js does not know is missing. */
  readonly zones: ReadonlyMap<string, number>;
  /** All places, those in unknown zones included. */
  readonly known: readonly string[];
}

/** The places in use, as rows of `in_use (place)`. The query jumps from place to place in the index. */
export const placesInUse: SQL = (() => {
  const next = (condition: SQL) => sql`
    select ${devicePlace} as place from ${devices} ${condition} order by ${devicePlace} limit 1`;
  return sql`
    in_use (place) as (
      (${next(sql``)})
      union all
      select (${next(sql`where ${devicePlace} > in_use.place`)}) from in_use where in_use.place is not null
    )`;
})();

const used = selection({ place: computed(text, sql`in_use.place`) });

/** Creates a cache of the offsets of a few notifications: the first look-up of a zone takes up to a millisecond. */
export function createPlaces(): (db: Database, acceptedAt: number) => Promise<Places> {
  const remembered = new LRUCache<number, Map<string, number>>({ max: 20 });
  return async (db, acceptedAt) => {
    const found = await rows(
      db,
      used,
      sql`with recursive ${placesInUse} select ${used} from in_use where in_use.place is not null`,
    );
    const known = found.map(({ place }) => place);
    const zones = remembered.get(acceptedAt) ?? new Map<string, number>();
    remembered.set(acceptedAt, zones);
    for (const place of known) {
      if (zones.has(place) || isOffset(place)) continue;
      const time = zoneTime(place, acceptedAt);
      if (time) zones.set(place, time.utcOffset);
      // Other work runs in between.
      await setImmediate();
    }
    return { zones, known };
  };
}

const isOffset = (place: string): boolean => /^-?\d+$/.test(place);

/** A place, and the offset of all devices there; null in an unknown zone, whose devices have offsets of their own. */
export interface PlaceAt {
  readonly place: string;
  readonly utcOffset: number | null;
}

/** The places at one of the offsets, and the zones that are not known. */
export function placesAt({ zones, known }: Places, utcOffsets: readonly number[]): PlaceAt[] {
  return known
    .map((place) => ({ place, utcOffset: isOffset(place) ? Number(place) : (zones.get(place) ?? null) }))
    .filter(({ utcOffset }) => utcOffset === null || utcOffsets.includes(utcOffset));
}

/** Condition in a statement with `placesInUse`: a device has come to a place that was not known before. */
export function hasUnknown({ known }: Places): SQL {
  return sql`exists (select from in_use where in_use.place <> all(${arrayLiteral(known)}::text[]))`;
}

/** An expression: a device's offset, which is that of its zone, or else the one that its app has given. */
export function offsetIn({ zones }: Places): SQL {
  const offsets = JSON.stringify(Object.fromEntries(zones));
  return sql`coalesce((${offsets}::jsonb ->> ${timeZone})::smallint, ${utcOffset})`;
}
