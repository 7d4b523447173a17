/**
 * How a service writes an event into its outbox, and what waits there. The data of an event is a message of proto/; code that omits
 * one of its fields, or adds one, does not compile. relay.ts delivers the events.
 */
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { type SQL, sql } from "drizzle-orm";
import type { OutboxBacklog } from "../base/observers.ts";
import { currentSpan } from "../base/tracing.ts";
import type { Executor } from "../database/database.ts";
import { names } from "../database/names.ts";
import { number } from "../database/readers.ts";
import { computed, rows, selection } from "../database/statements.ts";
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
  const columns: SQL[] = [event.id, event.type, event.subject, event.data, event.occurredAt];
  const data = sql`jsonb_build_object(${sql.join(members, sql`, `)})`;
  const values = [sql`gen_random_uuid()`, sql`${kind.type}::text`, subject, data, at];
  // A statement that is prepared for many requests is written outside of any span.
  const traceparent = currentSpan()?.context.traceparent;
  if (traceparent !== undefined) {
    columns.push(event.traceparent);
    values.push(sql`${traceparent}::text`);
  }
  return sql`
    insert into ${outbox} (${sql.join(columns, sql`, `)})
    select ${sql.join(values, sql`, `)}
    ${from}
    returning 1 as one`;
}

/**
 * What waits in an outbox, by a look at both of its ends, however many events there are. Events are delivered in the
 * order of their positions, so those between the two ends wait too; a number that a failed transaction has used up
 * counts as well, until the relay is past it.
 */
export async function outboxBacklog(db: Executor, outbox: OutboxTable): Promise<OutboxBacklog> {
  const { position, writtenAt } = names(outbox);
  const end = (order: SQL) => sql`
    (select ${position}, ${writtenAt} from ${outbox} order by ${position} ${order} limit 1)`;
  const backlog = selection({
    events: computed(number, sql`coalesce(newest.${position} - oldest.${position} + 1, 0)::float8`),
    oldestSeconds: computed(
      number,
      sql`coalesce(greatest(extract(epoch from clock_timestamp() - oldest.${writtenAt}), 0), 0)::float8`,
    ),
  });
  const [row] = await rows(
    db,
    backlog,
    sql`
      select ${backlog}
      from (select) as one left join ${end(sql`asc`)} as oldest on true left join ${end(sql`desc`)} as newest on true`,
  );
  return row ?? { events: 0, oldestSeconds: 0 };
}
