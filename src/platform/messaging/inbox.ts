/**
 * The inbox of a service: the ids of the events that it has acted on, so that one that comes twice acts once. An id is
 * written in the transaction of what the event does.
 */
import { sql } from "drizzle-orm";
import { index, type PgSchema, uuid } from "drizzle-orm/pg-core";
import { instant } from "../database/columns.ts";
import type { Database } from "../database/database.ts";
import { names } from "../database/names.ts";
import { rowCount } from "../database/statements.ts";

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
 * Does what an event asks for, unless that was done before. Once it resolves, what was done is confirmed by the standbys
 * that commits wait for, and the event need not come again.
 * @param act must use the transaction only
 */
export async function actOnce(
  db: Database,
  inbox: InboxTable,
  eventId: string,
  act: (tx: Database) => Promise<void>,
): Promise<void> {
  const entry = names(inbox);
  await db.transaction(async (tx) => {
    // A row that is there already is locked, which makes this a commit that waits for the standbys: the one that wrote
    // it may be visible without.
    const isNew = await rowCount(
      tx,
      sql`
        insert into ${inbox} (${entry.eventId}) values (${eventId}::uuid)
        on conflict (${entry.eventId}) do update set ${entry.eventId} = ${names(inbox, "excluded").eventId} where false
        returning 1 as one`,
    );
    if (isNew > 0) await act(tx);
  });
}
