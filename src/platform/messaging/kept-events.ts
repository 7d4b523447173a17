/**
 * Delivered events are kept for `hours`, in case the broker loses its disk; they then return to the outbox at their old
 * positions. `broker_streams` records which stream took them, by its creation time; a stream created anew has none of
 * them and gets newer events only after all have returned.
 *
 * Exception: what a process delivers to a new stream before it looks the stream up again arrives before the older
 * events of its subject.
 */
import { type SQL, sql } from "drizzle-orm";
import { type PgSchema, text } from "drizzle-orm/pg-core";
import { arrayLiteral, type Database, type Executor } from "../database/database.ts";
import { names } from "../database/sql/names.ts";
import { boolean, integer } from "../database/sql/readers.ts";
import { computed, isAmong, rowCount, rows, selection } from "../database/sql/statements.ts";
import type { KeptEventTable, OutboxTable } from "./outbox-table.ts";

/** The streams that have taken a service's events, in its PostgreSQL schema. */
export function brokerStreamTable<const Name extends string>(schema: PgSchema<Name>) {
  return schema.table("broker_streams", {
    streamName: text("stream_name").primaryKey(),
    /** When the stream that took the kept events was created, as the broker writes it. */
    streamCreated: text("created").notNull(),
  });
}

type BrokerStreamTable = ReturnType<typeof brokerStreamTable<string>>;

/** The tables that keep a service's delivered events, and the stream that took them. */
export interface KeptEvents {
  readonly kept: KeptEventTable;
  readonly streams: BrokerStreamTable;
  /** The stream's name. */
  readonly stream: string;
  /** Hours after its first delivery for which an event is kept. */
  readonly hours: number;
}

/** What became of the events that a stream had lost. */
interface TakenBack {
  /** The number of events that returned to the outbox. */
  readonly moved: number;
  /** The number of events that were deleted, as they had been kept for too long. */
  readonly tooOld: number;
}

/** The number of events that return in one transaction. */
const stepSize = 5_000;

/** The columns of an event, which are the same in both tables. */
function columnsOf(outbox: OutboxTable): { readonly list: SQL; readonly delivered: SQL } {
  const { deliveredAt, ...others } = names(outbox);
  const own = Object.values(others);
  const first = sql`coalesce(${deliveredAt}, clock_timestamp())`;
  return { list: sql.join([...own, deliveredAt], sql`, `), delivered: sql.join([...own, first], sql`, `) };
}

/**
 * Moves delivered events from the outbox to the kept events, if `broker_streams` still names the stream that took them.
 * If not, they stay in the outbox, to be delivered again with the events before them.
 * @param streamCreated when the stream that took them was created
 * @returns how many were moved
 */
export async function keepDelivered(
  db: Executor,
  outbox: OutboxTable,
  { kept, streams, stream }: KeptEvents,
  streamCreated: string,
  positions: readonly number[],
): Promise<number> {
  const { list, delivered } = columnsOf(outbox);
  const row = names(streams);
  return rowCount(
    db,
    sql`
      with taking as (
        select ${row.streamName} from ${streams} where ${row.streamName} = ${stream} and ${row.streamCreated} = ${streamCreated} for share
      ), delivered as (
        delete from ${outbox}
        where ${names(outbox).position} = any(${arrayLiteral(positions)}::bigint[]) and exists (select from taking)
        returning ${list}
      )
      insert into ${kept} (${list}) select ${delivered} from delivered returning 1 as one`,
  );
}

/**
 * Makes sure that all kept events were delivered to this very stream. If an older stream took them, which is gone, all
 * of them return to the outbox, in steps. Newer events may be delivered once this has resolved. Any number of processes
 * may call this at once, and if one dies, the others do the rest.
 * @param streamCreated when the stream as it is now was created
 * @param taken called after each step, with what became of its events
 * @throws if the other processes deliver to a stream that was created later: processes that see two streams would take
 *   back the events from each other for ever
 */
export async function takeBackLost(
  db: Database,
  outbox: OutboxTable,
  { kept, streams, stream, hours }: KeptEvents,
  streamCreated: string,
  taken: (step: TakenBack) => void,
): Promise<void> {
  const row = names(streams);
  const isNewer = sql`${row.streamCreated}::timestamptz > ${streamCreated}::timestamptz`;
  const known = selection({ streamCreated: row.streamCreated, isNewer: computed(boolean, isNewer) });
  const find = sql`select ${known} from ${streams} where ${row.streamName} = ${stream}`;
  const isCurrent = async (executor: Executor, look: SQL) => {
    const [found] = await rows(executor, known, look);
    if (found?.isNewer)
      throw new Error(
        `this process uses another stream than the others: its ${stream} was made at ${streamCreated}, theirs at ${found.streamCreated}; ` +
          "give all processes the same BROKER_URL, or see docs/deployment.md (NATS JetStream, Replay) if this one is right",
      );
    return found?.streamCreated === streamCreated;
  };
  if (await isCurrent(db, find)) return;
  await db.execute(sql`
    insert into ${streams} (${row.streamName}, ${row.streamCreated}) values (${stream}, ${streamCreated}) on conflict do nothing`);
  for (let isLast = false; !isLast; ) {
    let step: TakenBack = { moved: 0, tooOld: 0 };
    isLast = await db.transaction(async (tx) => {
      // A process that was about to keep what the older stream took has done so by now, or will find another row.
      if (await isCurrent(tx, sql`${find} for update`)) return true;
      step = await moveBack(tx, outbox, kept, hours);
      // The number of events does not show the last step: a janitor may just have removed some of a full one.
      const ended = sql`
        update ${streams} set ${row.streamCreated} = ${streamCreated}
        where ${row.streamName} = ${stream} and not exists (select from ${kept})
        returning 1 as one`;
      return (await rowCount(tx, ended)) > 0;
    });
    taken(step);
  }
}

/**
 * Returns the oldest kept events to the outbox: one step. Events that are older than `hours` are deleted instead, as
 * consumers may have forgotten their ids. There are such events if no janitor has removed them, because a version that
 * keeps no events ran for a while.
 */
async function moveBack(
  tx: Executor,
  outbox: OutboxTable,
  kept: KeptEventTable,
  hours: number,
): Promise<TakenBack> {
  const { list } = columnsOf(outbox);
  const { position } = names(kept);
  const counted = selection({
    moved: computed(integer, sql`(select count(*) from back)::int`),
    all: computed(integer, sql`(select count(*) from taken)::int`),
  });
  const [found] = await rows(
    tx,
    counted,
    sql`
      with taken as (
        delete from ${kept}
        where ${isAmong(position, sql`select ${position} from ${kept} order by ${position} limit ${stepSize}::int`)}
        returning ${list}
      ), back as (
        insert into ${outbox} (${list}) select ${list} from taken where not ${isTooOld(kept, hours)} returning 1 as one
      )
      select ${counted}`,
  );
  const { moved, all } = found ?? { moved: 0, all: 0 };
  return { moved, tooOld: all - moved };
}

/** Condition on a kept event: it has been kept for so many hours, by the database's clock. */
function isTooOld(kept: KeptEventTable, hours: number): SQL {
  return sql`(${names(kept).deliveredAt} <= (select clock_timestamp() - ${hours}::int * interval '1 hour'))`;
}

/**
 * The statement that removes a batch of events that were kept for long enough. It returns a row for each.
 * @param hours the hours for which events are kept; 0 removes all
 * @param batch `limit` and `for update skip locked`
 */
export function removeKept(kept: KeptEventTable, hours: number, batch: SQL): SQL {
  const { position, deliveredAt } = names(kept);
  const removable = sql`
    select ${position} from ${kept} where ${isTooOld(kept, hours)} order by ${deliveredAt} ${batch}`;
  return sql`delete from ${kept} where ${isAmong(position, removable)} returning 1 as one`;
}
