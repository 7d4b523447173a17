import { type SQL, sql } from "drizzle-orm";
import { type Database, rows } from "../../platform/database/database.ts";
import { PushEvents, type RemovalReason, recordEvent, removalReasonName } from "../events.ts";

/**
 * Removes devices and writes an event for each, in one statement.
 * @param chosen query that gives their ids as `chosen_id`. It must lock what it chooses, in the order of ids:
 *   then a device that is renewed or changes hands at the same moment is judged as it is afterwards, and two
 *   that remove the same ones wait for each other and do not deadlock
 * @returns how many there were
 */
export async function removeDevices(db: Database, chosen: SQL, reason: RemovalReason): Promise<number> {
  const removed = await rows(
    db,
    sql`
      with chosen as (${chosen}
      ), removed as (
        delete from push.devices using chosen where id = chosen_id returning id, user_id, provider
      )
      ${recordEvent(
        PushEvents.tokenRemoved,
        {
          userId: sql`user_id`,
          deviceId: sql`id::text`,
          provider: sql`provider`,
          reason: sql`${removalReasonName(reason)}::text`,
        },
        sql`from removed`,
      )}`,
  );
  return removed.length;
}
