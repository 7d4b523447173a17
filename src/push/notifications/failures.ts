/** Why messages of a notification failed: sums over all that it was cut into. */
import { eq, sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { integer, oneOf, text } from "../../platform/database/sql/readers.ts";
import { computed, rows, selection } from "../../platform/database/sql/statements.ts";
import { notificationNotFound } from "../errors.ts";
import { type ProviderName, providerNames } from "../provider-settings.ts";
import { notifications } from "../schema.ts";
import { part, parts } from "./chunk-sums.ts";
import { isNotificationId } from "./lock-notification.ts";

export interface FailureReason {
  readonly provider: ProviderName;
  /** A status and the provider's error code, or a few words. */
  readonly reason: string;
  readonly devices: number;
}

const n = names(notifications, "n");
const counted = selection({
  provider: computed(oneOf(providerNames), part.provider),
  reason: computed(text, sql`failed_reason`),
  devices: computed(integer, sql`sum(failed_devices::int)::int`),
});

/** @returns lists the reasons; it throws ServiceError `notification_not_found` */
export function createFailures(db: Database): (notificationId: string) => Promise<FailureReason[]> {
  return async (notificationId) => {
    if (!isNotificationId(notificationId)) throw notificationNotFound();
    if ((await db.$count(notifications, eq(notifications.id, notificationId))) === 0)
      throw notificationNotFound();
    return rows(
      db,
      counted,
      sql`
        select ${counted} from ${notifications} n cross join ${parts}
        cross join lateral jsonb_each_text(${part.failures}) as counted (failed_reason, failed_devices)
        where ${n.id} = ${notificationId}::uuid
        group by ${part.provider}, failed_reason order by sum(failed_devices::int) desc, ${part.provider}, failed_reason`,
    );
  };
}
