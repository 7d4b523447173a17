import { type SQL, sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { rowCount } from "../../platform/database/statements.ts";
import { PushEvents, type RemovalReason, recordEvent, removalReasonName } from "../events.ts";
import { devices } from "../schema.ts";

const { id, userId, provider } = names(devices);

/**
 * Removes devices and writes an event for each, in one statement.
 * @param chosen query that gives their ids as `chosen_id`. It must lock what it chooses, in the order of ids:
 *   then a device that is renewed or changes hands at the same moment is judged as it is afterwards, and two
 *   that remove the same ones wait for each other and do not deadlock
 * @returns how many there were
 */
export async function removeDevices(db: Database, chosen: SQL, reason: RemovalReason): Promise<number> {
  return rowCount(
    db,
    sql`
      with chosen as (${chosen}
      ), removed as (
        delete from ${devices} using chosen where ${id} = chosen_id returning ${id}, ${userId}, ${provider}
      )
      ${recordEvent(
        PushEvents.tokenRemoved,
        {
          userId,
          deviceId: sql`${id}::text`,
          provider,
          reason: sql`${removalReasonName(reason)}::text`,
        },
        sql`from removed`,
      )}`,
  );
}
