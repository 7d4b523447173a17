/**
 * How a service writes an event into its outbox. The data of an event is a message of proto/; code that omits
 * one of its fields, or adds one, does not compile. relay.ts delivers the events.
 */
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { type SQL, sql } from "drizzle-orm";
import { names } from "../database/names.ts";
import type { OutboxTable } from "./outbox-table.ts";

/** A kind of event. */
export interface EventKind<Message extends DescMessage> {
  /** `type` of the CloudEvent. */
  readonly type: string;
  readonly message: Message;
}

export function eventKind<const Message extends DescMessage>(
  type: string,
  message: Message,
): EventKind<Message> {
  return { type, message };
}

/** The fields of a message in its JSON form, each as an expression of SQL. */
export type FieldsOf<Message extends DescMessage> = {
  readonly [Name in Exclude<keyof MessageShape<Message>, "$typeName" | "$unknown">]: SQL;
};

interface EventWriting<Message extends DescMessage> {
  readonly kind: EventKind<Message>;
  /** Events of one subject are delivered in order. */
  readonly subject: SQL;
  readonly fields: FieldsOf<Message>;
  /** When it happened. */
  readonly at: SQL;
  /** `from` clause that gives a row for each event; without it, there is one event. */
  readonly from?: SQL;
}

/**
 * The statement that writes events into an outbox, by itself or as a part of another statement. It returns a row for
 * each event.
 */
export function insertEvents<Message extends DescMessage>(
  outbox: OutboxTable,
  writing: EventWriting<Message>,
): SQL {
  const { kind, subject, fields, at, from = sql`` } = writing;
  const members = Object.entries<SQL>(fields).map(([name, value]) => sql`${name}::text, ${value}`);
  const event = names(outbox);
  return sql`
    insert into ${outbox} (${event.id}, ${event.type}, ${event.subject}, ${event.data}, ${event.occurredAt})
    select gen_random_uuid(), ${kind.type}::text, ${subject}, jsonb_build_object(${sql.join(members, sql`, `)}), ${at}
    ${from}
    returning 1 as one`;
}
