/** What became of each device of a notification that names users, one by one. */
import { eq, type SQL, sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names, nullable, oneOf, text } from "../../platform/database/sql/readers.ts";
import { computed, isoTime, type RowOf, rows, selection } from "../../platform/database/sql/statements.ts";
import { notificationNotFound } from "../errors.ts";
import type { Page, PageRequest } from "../pages.ts";
import { providerNames } from "../provider-settings.ts";
import { messageOutcomes } from "../recipients-schema.ts";
import { notifications } from "../schema.ts";
import { isNotificationId } from "./lock-notification.ts";

const outcomes = ["SENT", "FAILED", "DROPPED", "DEAD_LETTERED"] as const;
const row = names(messageOutcomes);

const fields = {
  user: row.userId,
  provider: computed(oneOf(providerNames), row.provider),
  outcome: computed(oneOf(outcomes), row.outcome),
  /** The provider's; null if it was sent. */
  reason: computed(nullable(text), row.reason),
  at: computed(text, isoTime(row.at)),
};
const listed = selection(fields);

/** What became of a message to a device. */
export type RecipientOutcome = RowOf<typeof fields>;

export function createRecipients(db: Database) {
  /** Lists outcomes in the order of the users' ids. @throws `notification_not_found` */
  return async (id: string, { page, size }: PageRequest): Promise<Page<RecipientOutcome>> => {
    const isKnown = isNotificationId(id) && (await db.$count(notifications, eq(notifications.id, id))) > 0;
    if (!isKnown) throw notificationNotFound();
    const ofNotification: SQL = sql`${row.notificationId} = ${id}::uuid`;
    const content = await rows(
      db,
      listed,
      sql`
        select ${listed} from ${messageOutcomes} where ${ofNotification}
        order by ${row.userId}, ${row.deviceId} limit ${size}::int offset ${page * size}::bigint`,
    );
    return { content, number: page, size, totalElements: await db.$count(messageOutcomes, ofNotification) };
  };
}
