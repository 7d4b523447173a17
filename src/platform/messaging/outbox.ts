/** How a service writes an event into its outbox, and what waits there. The fields are those of a message of proto/. */
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { type SQL, sql } from "drizzle-orm";
import type { OutboxBacklog } from "../base/observers.ts";
import { currentSpan } from "../base/tracing.ts";
import { arrayLiteral, type Executor } from "../database/database.ts";
import { names, number } from "../database/sql/readers.ts";
import { computed, rows, selection } from "../database/sql/statements.ts";
import type { OutboxTable } from "./outbox-table.ts";

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

/** By which request something is changed, and who sent it. */
export interface RequestOrigin {
  /** As in `X-Request-Id`. */
  readonly requestId: string;
  /** The client's id. */
  readonly caller: string;
}

/** Of a change that no request asks for. */
export const noRequest: RequestOrigin = { requestId: "", caller: "" };

/** The fields of an event that say by which request it came to be. */
export function originFields({ requestId, caller }: RequestOrigin) {
  return { requestId: sql`${requestId}::text`, caller: sql`${caller}::text` };
}

interface EventWriting<Message extends DescMessage> {
  readonly kind: EventKind<Message>;
  /** `subject` of the CloudEvent. Events of one subject are delivered in order. */
  readonly subject: SQL;
  readonly fields: FieldsOf<Message>;
  /** `time` of the CloudEvent: when what it reports happened. */
  readonly at: SQL;
  /** `from` clause that gives a row for each event; without it, there is one event. */
  readonly from?: SQL;
}

/** The statement that writes events into an outbox, by itself or within another one. It returns a row for each. */
export function insertEvents<Message extends DescMessage>(
  outbox: OutboxTable,
  writing: EventWriting<Message>,
): SQL {
  const { kind, subject, fields, at, from = sql`` } = writing;
  // Names of a contract are texts of the statement, as they are the same in each event.
  const members = Object.entries<SQL>(fields).map(([name, value]) => sql`${sql.raw(`'${name}'`)}, ${value}`);
  const event = names(outbox);
  const columns: SQL[] = [event.id, event.type, event.subject, event.data, event.occurredAt];
  // In the JSON of Protobuf, a field that is not set is absent.
  const data = sql`jsonb_strip_nulls(jsonb_build_object(${sql.join(members, sql`, `)}))`;
  const values = [sql`gen_random_uuid()`, sql.raw(`'${kind.type}'`), subject, data, at];
  // A statement that is prepared for many requests is written outside of any span.
  const { traceparent, tracestate } = currentSpan()?.context ?? {};
  for (const [column, value] of [
    [event.traceparent, traceparent],
    [event.tracestate, tracestate],
  ] as const) {
    if (value === undefined) continue;
    columns.push(column);
    values.push(sql`${value}::text`);
  }
  return sql`
    insert into ${outbox} (${sql.join(columns, sql`, `)})
    select ${sql.join(values, sql`, `)}
    ${from}
    returning 1 as one`;
}

export interface DeliverableTypes {
  /** The types of events that it can deliver; all unless given. Others wait for a newer version, and hold up none. */
  readonly types?: readonly string[];
}

/** Condition on an event of the outbox: all subscribers can deliver it. */
export function isKnown(outbox: OutboxTable, subscribers: readonly DeliverableTypes[]): SQL {
  const { type } = names(outbox);
  const conditions = subscribers.flatMap(({ types }) =>
    types ? [sql`${type} = any(${arrayLiteral(types)}::text[])`] : [],
  );
  return conditions.length > 0 ? sql.join(conditions, sql` and `) : sql`true`;
}

/** The number of the oldest events among which those of unknown types are counted: as these stay, they get oldest. */
const looked = 1_000;

/**
 * What waits in an outbox, by its two ends and its oldest events; used-up positions count as well. It may take seconds
 * while a snapshot is held. @param start the position below which no event waits
 */
export async function outboxBacklog(
  db: Executor,
  outbox: OutboxTable,
  subscribers: readonly DeliverableTypes[],
  start: number,
): Promise<OutboxBacklog> {
  const { position, writtenAt, type } = names(outbox);
  const waiting = sql`${outbox} where ${position} >= ${start}::bigint`;
  const end = (order: SQL) => sql`
    (select ${position}, ${writtenAt} from ${waiting} order by ${position} ${order} limit 1)`;
  const first = sql`(select ${type} from ${waiting} order by ${position} limit ${looked}::int)`;
  const backlog = selection({
    events: computed(number, sql`coalesce(newest.${position} - oldest.${position} + 1, 0)::float8`),
    oldestSeconds: computed(
      number,
      sql`coalesce(greatest(extract(epoch from clock_timestamp() - oldest.${writtenAt}), 0), 0)::float8`,
    ),
    unknown: computed(
      number,
      sql`(select count(*)::int from ${first} as first where not (${isKnown(outbox, subscribers)}))`,
    ),
  });
  const [row] = await rows(
    db,
    backlog,
    sql`
      select ${backlog}
      from (select) as one left join ${end(sql`asc`)} as oldest on true left join ${end(sql`desc`)} as newest on true`,
  );
  return row ?? { events: 0, oldestSeconds: 0, unknown: 0 };
}
