import { type SQL, sql } from "drizzle-orm";
import { confirmUnless } from "../../platform/database/confirm.ts";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { integer } from "../../platform/database/sql/readers.ts";
import { computed, isAmong, rows, selection } from "../../platform/database/sql/statements.ts";
import { PushEvents, type RemovalReason, recordEvent, removalReasonName } from "../events.ts";
import { devices } from "../schema.ts";

const { id, userId, provider, tokenHash } = names(devices);
const removal = selection({ count: computed(integer, sql`(select count(*)::int from removed)`) });

/** Reasons whose removals are reported: to a caller, or to the broker, which then forgets the event. */
const confirmedReasons: ReadonlySet<RemovalReason> = new Set(["USER", "AUTHORIZATION_REVOKED"]);

/**
 * Removes devices and writes an event for each, in one statement. Once it resolves, the removal is confirmed by the
 * standbys that commits wait for; for some reasons also if the devices had been removed before.
 * @param chosen query that returns the hashes of their tokens as `chosen_hash`. It must lock the rows in the order of
 *   ids: then a device that is renewed at the same time is checked again, and concurrent removals do not deadlock
 * @returns how many were removed
 */
export async function removeDevices(db: Database, chosen: SQL, reason: RemovalReason): Promise<number> {
  const confirming = confirmedReasons.has(reason)
    ? sql`, ${confirmUnless(sql`exists (select from removed)`)}`
    : sql``;
  const [result] = await rows(
    db,
    removal,
    sql`
      with chosen as (${chosen}
      ), removed as (
        delete from ${devices} where ${isAmong(tokenHash, sql`select chosen_hash from chosen`)}
        returning ${id}, ${userId}, ${provider}
      ), recorded as (${recordEvent(
        PushEvents.tokenRemoved,
        {
          userId,
          deviceId: sql`${id}::text`,
          provider,
          reason: sql`${removalReasonName(reason)}::text`,
        },
        { from: sql`from removed` },
      )})
      select ${removal}${confirming}`,
  );
  return result?.count ?? 0;
}
