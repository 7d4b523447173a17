import { type SQL, type SQLWrapper, sql } from "drizzle-orm";
import { bigint, bigserial, index, jsonb, type PgSchema, text, uuid } from "drizzle-orm/pg-core";
import { instant } from "../database/columns.ts";

/** Into how many parts events are shared out by their subjects, a power of two. The table has an index of these parts. */
export const outboxParts = 8;

/** The number of the part of a subject's events. */
export function partOf(subject: SQLWrapper): SQL {
  return sql`(hashtext(${subject}) & ${sql.raw(`${outboxParts - 1}`)})`;
}

/** An event, apart from its position. */
const eventColumns = () => ({
  id: uuid("id").notNull(),
  type: text("type").notNull(),
  subject: text("subject").notNull(),
  data: jsonb("data").$type<Record<string, unknown>>().notNull(),
  /** When what the event is about happened, which may be long before. */
  occurredAt: instant("occurred_at").notNull(),
  /** When the event was written, by the database's clock. */
  writtenAt: instant("written_at").notNull().defaultNow(),
  /** Names the span in which it was written, where that was traced. */
  traceparent: text("traceparent"),
});

/** The outbox of a service, in its PostgreSQL schema: events that are still to be delivered. */
export function outboxTable<const Name extends string>(schema: PgSchema<Name>) {
  return schema.table(
    "outbox",
    {
      position: bigserial("position", { mode: "number" }).primaryKey(),
      ...eventColumns(),
      /** When it was delivered for the first time, if the broker has lost it since; null otherwise. */
      deliveredAt: instant("delivered_at"),
    },
    (table) => [index("outbox_parts").on(partOf(table.subject), table.position)],
  );
}

/** Events that were delivered, with the columns of the outbox, and their position there. */
export function keptEventTable<const Name extends string>(schema: PgSchema<Name>) {
  return schema.table(
    "kept_events",
    {
      position: bigint("position", { mode: "number" }).primaryKey(),
      ...eventColumns(),
      /** For the first time. */
      deliveredAt: instant("delivered_at").notNull(),
    },
    (table) => [index("kept_events_delivered_at").on(table.deliveredAt)],
  );
}

export type OutboxTable = ReturnType<typeof outboxTable<string>>;
export type KeptEventTable = ReturnType<typeof keptEventTable<string>>;
