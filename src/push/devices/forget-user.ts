import { sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { deadReports, devices, historyUsers, historyViews } from "../schema.ts";
import { removeDevices } from "./remove-devices.ts";

const device = names(devices);
const view = names(historyViews);
const user = names(historyUsers);
const report = names(deadReports);

/**
 * Removes a user's devices and history for good, in one transaction. Can be repeated. Devices that are registered
 * afterwards are new.
 */
type ForgetUser = (userId: string) => Promise<void>;

export function createForgetUser({ db }: { readonly db: Database }): ForgetUser {
  return (userId) =>
    db.transaction(async (tx) => {
      // No planning step may run meanwhile: it could write history for a device that it read before. The lock must be
      // acquired before the next statement takes its snapshot.
      await tx.execute(sql`select pg_advisory_xact_lock(hashtext('push.plan'))`);
      const chosen = sql`
        select ${device.id} as chosen_id from ${devices}
        where ${device.userId} = ${userId} order by ${device.id} for update`;
      // The reports first, as where dead devices are removed, to avoid deadlocks.
      await tx.execute(sql`delete from ${deadReports} where ${report.userId} = ${userId}`);
      await removeDevices(tx, chosen, "IDENTITY_DELETED");
      // Without the number nothing tells whose the bits and views are. It is not given again, so the user's bits stay.
      const numbered = sql`select ${user.userNumber} from ${historyUsers} where ${user.userId} = ${userId}`;
      await tx.execute(sql`delete from ${historyViews} where ${view.userNumber} = (${numbered})`);
      await tx.execute(sql`delete from ${historyUsers} where ${user.userId} = ${userId}`);
    });
}
