/**
 * Events that were delivered and are kept for a while, in case the broker loses them with its disk: then they go back to
 * the outbox, at their old positions, so before anything newer of their subjects. A row knows which stream has taken
 * them, by the moment of its making as the broker gives it: a stream that was made anew has none of them. No newer event
 * is delivered to it until all have gone back, and no event is kept as delivered but to the stream of that row. The
 * exception is what a process delivers to a stream that was made anew while connections stay, before it looks again: the
 * older events of its subjects come after it.
 */
import { type SQL, sql } from "drizzle-orm";
import { type PgSchema, text } from "drizzle-orm/pg-core";
import { arrayLiteral, type Database, type Executor } from "../database/database.ts";
import { names } from "../database/names.ts";
import { boolean, integer } from "../database/readers.ts";
import { computed, rowCount, rows, selection } from "../database/statements.ts";
import type { KeptEventTable, OutboxTable } from "./outbox-table.ts";

/** The streams that have taken a service's events, in its PostgreSQL schema. */
export function brokerStreamTable<const Name extends string>(schema: PgSchema<Name>) {
  return schema.table("broker_streams", {
    streamName: text("stream_name").primaryKey(),
    /** When it was made, as the broker writes it; what is kept was delivered to this one. */
    created: text("created").notNull(),
  });
}

type BrokerStreamTable = ReturnType<typeof brokerStreamTable<string>>;

/** What keeps a service's events, and for which stream. */
export interface KeptEvents {
  readonly kept: KeptEventTable;
  readonly streams: BrokerStreamTable;
  /** The stream's name. */
  readonly stream: string;
  /** For how many hours after its first delivery an event is kept. */
  readonly hours: number;
}

/** What became of events that a stream had lost. */
interface TakenBack {
  /** So many went back to the outbox. */
  readonly moved: number;
  /** So many were deleted, as they had been kept for too long. */
  readonly tooOld: number;
}

/** Events that go back in one transaction. */
const stepSize = 5_000;

/** The columns of an event, which are the same in both tables. */
function columnsOf(outbox: OutboxTable): { readonly list: SQL; readonly delivered: SQL } {
  const { deliveredAt, ...others } = names(outbox);
  const own = Object.values(others);
  const first = sql`coalesce(${deliveredAt}, clock_timestamp())`;
  return { list: sql.join([...own, deliveredAt], sql`, `), delivered: sql.join([...own, first], sql`, `) };
}

/**
 * Moves delivered events from the outbox to those that are kept, if the stream that took them is still the one of the
 * row: otherwise they stay, to be delivered again with those before them.
 * @param created of the stream that has taken them
 * @returns how many were moved
 */
export async function keepDelivered(
  db: Executor,
  outbox: OutboxTable,
  { kept, streams, stream }: KeptEvents,
  created: string,
  positions: readonly number[],
): Promise<number> {
  const { list, delivered } = columnsOf(outbox);
  const row = names(streams);
  return rowCount(
    db,
    sql`
      with taking as (
        select ${row.streamName} from ${streams} where ${row.streamName} = ${stream} and ${row.created} = ${created} for share
      ), delivered as (
        delete from ${outbox}
        where ${names(outbox).position} = any(${arrayLiteral(positions)}::bigint[]) and exists (select from taking)
        returning ${list}
      )
      insert into ${kept} (${list}) select ${delivered} from delivered returning 1 as one`,
  );
}

/**
 * Makes sure that what is kept was delivered to this very stream: if it was to one before, which is gone, all of it goes
 * back to the outbox, in steps. Newer events may be delivered once this has resolved. Any number of processes may do it
 * at once, and one that dies leaves the rest to the others. It rejects where the others deliver to a stream that was
 * made later: processes that see two streams would take everything back from each other for ever.
 * @param created of the stream as it is now
 * @param taken told what became of those of each step
 */
export async function takeBackLost(
  db: Database,
  outbox: OutboxTable,
  { kept, streams, stream, hours }: KeptEvents,
  created: string,
  taken: (step: TakenBack) => void,
): Promise<void> {
  const row = names(streams);
  const isNewer = sql`${row.created}::timestamptz > ${created}::timestamptz`;
  const known = selection({ created: row.created, isNewer: computed(boolean, isNewer) });
  const find = sql`select ${known} from ${streams} where ${row.streamName} = ${stream}`;
  const isCurrent = async (executor: Executor, look: SQL) => {
    const [found] = await rows(executor, known, look);
    if (found?.isNewer)
      throw new Error(
        `this process uses another stream than the others: its ${stream} was made at ${created}, theirs at ${found.created}; ` +
          "give all processes the same BROKER_URL, or see docs/deployment.md (NATS JetStream, Replay) if this one is right",
      );
    return found?.created === created;
  };
  if (await isCurrent(db, find)) return;
  await db.execute(sql`
    insert into ${streams} (${row.streamName}, ${row.created}) values (${stream}, ${created}) on conflict do nothing`);
  for (let isLast = false; !isLast; ) {
    let step: TakenBack = { moved: 0, tooOld: 0 };
    isLast = await db.transaction(async (tx) => {
      // Whoever is about to keep what the older stream took has done so by now, or will find another row.
      if (await isCurrent(tx, sql`${find} for update`)) return true;
      step = await moveBack(tx, outbox, kept, hours);
      // A step is short as well where a janitor has just removed some of its events.
      const ended = sql`
        update ${streams} set ${row.created} = ${created}
        where ${row.streamName} = ${stream} and not exists (select from ${kept})
        returning 1 as one`;
      return (await rowCount(tx, ended)) > 0;
    });
    taken(step);
  }
}

/**
 * One step. What is older than it should be is deleted, as whoever reads may have forgotten its ids: no janitor has run
 * where a version that keeps none was brought back for a while.
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
        where ${position} in (select ${position} from ${kept} order by ${position} limit ${stepSize}::int)
        returning ${list}
      ), back as (
        insert into ${outbox} (${list}) select ${list} from taken where not ${isTooOld(kept, hours)} returning 1 as one
      )
      select ${counted}`,
  );
  const { moved, all } = found ?? { moved: 0, all: 0 };
  return { moved, tooOld: all - moved };
}

/** By the database's clock. */
function isTooOld(kept: KeptEventTable, hours: number): SQL {
  return sql`(${names(kept).deliveredAt} <= (select clock_timestamp() - ${hours}::int * interval '1 hour'))`;
}

/**
 * The statement that removes a batch of events that were kept for long enough, a row for each.
 * @param hours for which they are kept; 0 removes all
 * @param batch `limit` and `for update skip locked`
 */
export function removeKept(kept: KeptEventTable, hours: number, batch: SQL): SQL {
  const { position, deliveredAt } = names(kept);
  return sql`
    delete from ${kept} where ${position} in (
      select ${position} from ${kept}
      where ${isTooOld(kept, hours)}
      order by ${deliveredAt} ${batch})
    returning 1 as one`;
}
