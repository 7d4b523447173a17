import { sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { rowCount } from "../../platform/database/sql/statements.ts";
import { forgetHistory } from "../history/forget-history.ts";
import { planLock } from "../plan-lock.ts";
import { deadReports, devices } from "../schema.ts";
import { removeDevices } from "./remove-devices.ts";

const device = names(devices);
const report = names(deadReports);

/** Seconds by which the clock of push's database may be ahead of that of the auth service. */
const clockSeconds = 60;

/**
 * Removes a user's devices and history for good. Can be repeated. Devices that were renewed after the deletion stay,
 * however late this is called: they belong to a new user with the same id. If there are any, entries of notifications
 * that were accepted since then stay, too; devices of the deleted user may have got some of these.
 * @param tx a transaction
 */
export async function forgetUser(tx: Database, userId: string, deletedAt: Date): Promise<void> {
  // A step of planning that ran meanwhile could write history for a device that it read before.
  await planLock.exclusive(tx);
  const renewedSince = new Date(deletedAt.getTime() + clockSeconds * 1000);
  const chosen = sql`
    select ${device.tokenHash} as chosen_hash from ${devices}
    where ${device.userId} = ${userId} and ${device.renewedAt} <= ${renewedSince.toISOString()}::timestamptz
    order by ${device.id} for update`;
  // The reports come before the devices, as they do where dead devices are removed, so that there is no deadlock. They
  // come after the lock, as the holder of a notification that a step of planning waits for may wait for a report.
  await tx.execute(sql`delete from ${deadReports} where ${report.userId} = ${userId}`);
  await removeDevices(tx, chosen, "IDENTITY_DELETED");
  const left = await rowCount(
    tx,
    sql`select 1 as one from ${devices} where ${device.userId} = ${userId} limit 1`,
  );
  await forgetHistory(tx, userId, left > 0 ? renewedSince : undefined);
}
