/** Why messages of a notification failed: sums over its chunks. */
import { sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { integer, oneOf, text } from "../../platform/database/sql/readers.ts";
import { computed, rowCount, rows, selection } from "../../platform/database/sql/statements.ts";
import { notificationNotFound } from "../errors.ts";
import { type ProviderName, providerNames } from "../provider-settings.ts";
import { deliveryChunks, notifications } from "../schema.ts";
import { isNotificationId } from "./lock-notification.ts";

export interface FailureReason {
  readonly provider: ProviderName;
  /** A status and the provider's error code, or a few words. */
  readonly reason: string;
  readonly devices: number;
}

const chunk = names(deliveryChunks);
const counted = selection({
  provider: computed(oneOf(providerNames), chunk.provider),
  reason: computed(text, sql`failed_reason`),
  devices: computed(integer, sql`sum(failed_devices::int)::int`),
});

/** @returns lists the reasons; it throws ServiceError `notification_not_found` */
export function createFailures(db: Database): (notificationId: string) => Promise<FailureReason[]> {
  return async (notificationId) => {
    if (!isNotificationId(notificationId)) throw notificationNotFound();
    const isOne = sql`${names(notifications).id} = ${notificationId}::uuid`;
    if ((await rowCount(db, sql`select 1 as one from ${notifications} where ${isOne}`)) === 0) {
      throw notificationNotFound();
    }
    return rows(
      db,
      counted,
      sql`
        select ${counted} from ${deliveryChunks}
        cross join lateral jsonb_each_text(${chunk.failures}) as counted (failed_reason, failed_devices)
        where ${chunk.notificationId} = ${notificationId}::uuid
        group by ${chunk.provider}, failed_reason order by sum(failed_devices::int) desc, ${chunk.provider}, failed_reason`,
    );
  };
}
