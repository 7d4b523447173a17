import { sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { removeDevices } from "./remove-devices.ts";

/**
 * Removes a user's devices and history, for good, in one transaction. Can be repeated. The user may come back:
 * what is registered afterwards is new.
 */
type ForgetUser = (userId: string) => Promise<void>;

export function createForgetUser({ db }: { readonly db: Database }): ForgetUser {
  return (userId) =>
    db.transaction(async (tx) => {
      // No step of planning runs meanwhile, which could write history for a device that it saw before. The lock
      // must be had before the snapshot of the next statement is made.
      await tx.execute(sql`select pg_advisory_xact_lock(hashtext('push.plan'))`);
      const chosen = sql`
        select id as chosen_id from push.devices where user_id = ${userId} order by id for update`;
      await removeDevices(tx, chosen, "IDENTITY_DELETED");
      // In the order in which readers that mark entries lock them.
      await tx.execute(sql`
        with chosen as (
          select notification_id as chosen_id from push.history
          where user_id = ${userId} order by notification_id for update
        )
        delete from push.history using chosen where user_id = ${userId} and notification_id = chosen_id`);
    });
}
