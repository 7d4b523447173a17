import { type SQL, sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { rowCount } from "../../platform/database/statements.ts";
import { PushEvents, type RemovalReason, recordEvent, removalReasonName } from "../events.ts";
import { devices } from "../schema.ts";

const { id, userId, provider } = names(devices);

/**
 * Removes devices and writes an event for each, in one statement.
 * @param chosen query that returns their ids as `chosen_id`. It must lock the rows in the order of ids: then a device
 *   that is renewed or changes its user at the same time is checked again as it is afterwards, and concurrent
 *   removals of the same devices wait for each other instead of deadlocking
 * @returns how many were removed
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
