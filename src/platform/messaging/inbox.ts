/** The inbox of a service: the ids of the events that it has handled, written in the transaction of their effect. */
import { index, type PgSchema, uuid } from "drizzle-orm/pg-core";
import { confirmCommit } from "../database/confirm.ts";
import type { Database } from "../database/database.ts";
import { instant } from "../database/sql/columns.ts";

export function inboxTable<const Name extends string>(schema: PgSchema<Name>) {
  return schema.table(
    "inbox",
    {
      eventId: uuid("event_id").primaryKey(),
      receivedAt: instant("received_at").notNull().defaultNow(),
    },
    (table) => [index("inbox_received_at").on(table.receivedAt)],
  );
}

type InboxTable = ReturnType<typeof inboxTable<string>>;

/**
 * Handles an event, in the transaction alone, unless that was done before; confirmed by the standbys once it resolves.
 */
export async function handleOnce(
  db: Database,
  inbox: InboxTable,
  eventId: string,
  handle: (tx: Database) => Promise<void>,
): Promise<void> {
  await db.transaction(async (tx) => {
    const written = await tx.insert(inbox).values({ eventId }).onConflictDoNothing().returning();
    if (written.length > 0) await handle(tx);
    // The commit that has handled the event may be visible without being confirmed.
    else await confirmCommit(tx);
  });
}
