/** The table of events that are still to be delivered. */
import { type SQL, type SQLWrapper, sql } from "drizzle-orm";
import { bigserial, index, jsonb, type PgSchema, text, uuid } from "drizzle-orm/pg-core";
import { instant } from "../database/sql/columns.ts";
import type { CloudEvent } from "./cloud-event.ts";

/** The number of parts that events are divided into by subject, a power of two. The table has an index of the parts. */
export const outboxParts = 8;

/** The number of the part of a subject's events. */
export function partOf(subject: SQLWrapper): SQL {
  return sql`(hashtext(${subject}) & ${sql.raw(`${outboxParts - 1}`)})`;
}

export function outboxTable<const Name extends string>(schema: PgSchema<Name>) {
  return schema.table(
    "outbox",
    {
      position: bigserial("position", { mode: "number" }).primaryKey(),
      id: uuid("id").notNull(),
      type: text("type").notNull(),
      subject: text("subject").notNull(),
      data: jsonb("data").$type<CloudEvent["data"]>().notNull(),
      /** The time of what the event reports, which may be long before it was written. */
      occurredAt: instant("occurred_at").notNull(),
      /** The time at which the event was written, by the database's clock. */
      writtenAt: instant("written_at").notNull().defaultNow(),
      /** The span in which the event was written (W3C Trace Context); null if it was not traced. */
      traceparent: text("traceparent"),
      /** The `tracestate` of that span; null if it had none. */
      tracestate: text("tracestate"),
    },
    (table) => [index("outbox_parts").on(partOf(table.subject), table.position)],
  );
}

export type OutboxTable = ReturnType<typeof outboxTable<string>>;
