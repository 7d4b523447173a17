import { sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { planLock } from "../plan-lock.ts";
import { deadReports, devices, historyUsers } from "../schema.ts";
import { removeDevices } from "./remove-devices.ts";

const device = names(devices);
const user = names(historyUsers);
const report = names(deadReports);

/**
 * Seconds by which the clock of a push process may be ahead of that of the auth service. A device that was renewed so
 * shortly after the deletion may be the deleted user's, and goes; its app registers it again.
 */
const clockSeconds = 60;

/**
 * Removes a user's devices and history for good. Can be repeated. Devices that were renewed after the deletion stay,
 * however late this is called: they belong to a new user with the same id.
 * @param tx a transaction
 */
export async function forgetUser(tx: Database, userId: string, deletedAt: Date): Promise<void> {
  // No planning step may run meanwhile: it could write history for a device that it read before. The lock must be
  // acquired before the next statement takes its snapshot.
  await planLock.exclusive(tx);
  const chosen = sql`
    select ${device.id} as chosen_id from ${devices}
    where ${device.userId} = ${userId}
      and ${device.renewedAt} <= ${deletedAt.toISOString()}::timestamptz + ${clockSeconds}::int * interval '1 second'
    order by ${device.id} for update`;
  // The reports first, as where dead devices are removed, to avoid deadlocks; and after the lock: who holds a
  // notification that a step of planning waits for may wait for a report.
  await tx.execute(sql`delete from ${deadReports} where ${report.userId} = ${userId}`);
  await removeDevices(tx, chosen, "IDENTITY_DELETED");
  // Without the number nothing tells whose the bits and views are, and it is not given again. They go with their age:
  // there may be many, and planning waits.
  await tx.execute(sql`delete from ${historyUsers} where ${user.userId} = ${userId}`);
}
