/**
 * The offsets of devices whose apps have said a time zone, at the moment when a notification was accepted. Planning
 * looks them up, so that summer time changes no row; and as all steps look them up for one moment, no device changes
 * its offset between them.
 */
import { setImmediate } from "node:timers/promises";
import { type SQL, sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { number, text } from "../../platform/database/readers.ts";
import { computed, rows, selection } from "../../platform/database/statements.ts";
import { zoneTime } from "../devices/time-zone.ts";
import { devices, notifications } from "../schema.ts";

/** Minutes east of UTC, by time zone. */
export type ZoneOffsets = Readonly<Record<string, number>>;

const { timeZone, utcOffset } = names(devices);
const notification = names(notifications);

const used = selection({
  zone: computed(text, sql`zone`),
  acceptedAt: computed(number, sql`(extract(epoch from ${notification.acceptedAt}) * 1000)::float8`),
});

/** The offsets of the zones that devices are in when the notification was accepted; none if it does not exist. */
export async function zoneOffsets(db: Database, notificationId: string): Promise<ZoneOffsets> {
  // Jumps from one zone to the next in the index: `distinct` would read a row for each device.
  const next = (after: SQL) => sql`
    select ${timeZone} from ${devices} where ${timeZone} ${after} order by ${timeZone} limit 1`;
  const found = await rows(
    db,
    used,
    sql`
      with recursive zones (zone) as (
        (${next(sql`is not null`)})
        union all
        select (${next(sql`> zone`)}) from zones where zone is not null
      )
      select ${used} from zones, ${notifications}
      where zone is not null and ${notification.id} = ${notificationId}::uuid`,
  );
  const offsets: Record<string, number> = {};
  for (const { zone, acceptedAt } of found) {
    const time = zoneTime(zone, acceptedAt);
    // If this version of Node.js does not know the zone, the offset of the registration stands.
    if (time) offsets[zone] = time.utcOffset;
    // A first look at a zone takes up to a millisecond; other work runs in between.
    await setImmediate();
  }
  return offsets;
}

/** A device's offset: that of its zone, or else the one that its app has said. */
export function offsetIn(zones: ZoneOffsets): SQL {
  return sql`coalesce((${JSON.stringify(zones)}::jsonb ->> ${timeZone})::smallint, ${utcOffset})`;
}
