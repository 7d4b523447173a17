/**
 * The inbox of a service: the ids of the events that it has acted on, so that one that comes twice acts once. An id is
 * written in the transaction of what the event does.
 */
import { sql } from "drizzle-orm";
import { index, type PgSchema, uuid } from "drizzle-orm/pg-core";
import { instant } from "../database/columns.ts";
import type { Database, OpenDatabase } from "../database/database.ts";
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
 * Does what an event asks for, unless that was done before. Once it resolves, what was done is confirmed, and the event
 * need not come again.
 * @param act must use the transaction only
 */
export async function actOnce(
  { db, confirm }: Pick<OpenDatabase, "db" | "confirm">,
  inbox: InboxTable,
  eventId: string,
  act: (tx: Database) => Promise<void>,
): Promise<void> {
  const entry = names(inbox);
  const isNew = await db.transaction(async (tx) => {
    const inserted = await rowCount(
      tx,
      sql`insert into ${inbox} (${entry.eventId}) values (${eventId}::uuid) on conflict do nothing returning 1 as one`,
    );
    if (inserted > 0) await act(tx);
    return inserted > 0;
  });
  // Nothing was written that waits for the standbys, and it may be here again because the first time was not confirmed.
  if (!isNew) await confirm();
}
