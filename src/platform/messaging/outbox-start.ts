/**
 * Where looks into an outbox begin. While somebody holds a snapshot, as a dump does, PostgreSQL keeps the rows of
 * delivered events, and a look from the lowest position would pass them all: so it begins where the sequence was a
 * minute ago, unless an event waits below. What becomes visible below it later is found by a look at all positions each
 * minute.
 */
import { sql } from "drizzle-orm";
import { getTableConfig } from "drizzle-orm/pg-core";
import type { Executor } from "../database/database.ts";
import { integer, listOf, names, nullable, number } from "../database/sql/readers.ts";
import { computed, onlyRow, selection } from "../database/sql/statements.ts";
import { type DeliverableTypes, isKnown } from "./outbox.ts";
import { type OutboxTable, partOf } from "./outbox-table.ts";

interface Waiting {
  readonly isAny: boolean;
  /** The parts that have an event which all subscribers know. */
  readonly parts: readonly number[];
}

/** Milliseconds after which a position of the sequence becomes the start, and between looks at all positions. */
const minuteMs = 60_000;

export class OutboxStart {
  #position = 0;
  /** What becomes the start. */
  #next: { readonly position: number; readonly at: number } | undefined;
  #fullLookAt = performance.now() + minuteMs;

  /** What waits below it has not been seen yet. */
  get position(): number {
    return this.#position;
  }

  /** Looks in which of `count` parts events wait, and moves the start. Rejects where the database does not respond. */
  async look(
    db: Executor,
    outbox: OutboxTable,
    subscribers: readonly DeliverableTypes[],
    count = 1,
  ): Promise<Waiting> {
    const now = performance.now();
    const isFull = now >= this.#fullLookAt;
    // One that fails is not repeated at once: it may take too long each time, and the start holds without it.
    if (isFull) this.#fullLookAt = now + minuteMs;
    const state = stateOf(outbox, subscribers, isFull ? 0 : this.#position, count);
    const { oldest, assigned, parts } = await onlyRow(db, state, sql`select ${state}`);
    if (this.#next && now >= this.#next.at + minuteMs) {
      this.#position = this.#next.position;
      this.#next = undefined;
    }
    this.#next ??= { position: assigned + 1, at: performance.now() };
    this.#position = Math.min(this.#position, oldest ?? Number.POSITIVE_INFINITY);
    return { isAny: oldest !== null, parts };
  }
}

/** What one look reads, in one snapshot; in the order of the indexes, or the planner could read the whole table. */
function stateOf(outbox: OutboxTable, subscribers: readonly DeliverableTypes[], from: number, count: number) {
  const { position, subject } = names(outbox);
  const { schema, name } = getTableConfig(outbox);
  const waiting = sql`from ${outbox} where ${position} >= ${from}::bigint`;
  const known = sql`select ${waiting} and ${isKnown(outbox, subscribers)}`;
  const part = partOf(subject);
  const first =
    count > 1
      ? sql`${known} and ${part} between numbered and numbered order by ${part}, ${position} limit 1`
      : sql`${known} order by ${position} limit 1`;
  return selection({
    /** The lowest position of an event that waits; null if none does. */
    oldest: computed(
      nullable(number),
      sql`(select ${position}::float8 as lowest ${waiting} order by ${position} limit 1)`,
    ),
    parts: computed(
      listOf(integer),
      sql`(
        select coalesce(json_agg(numbered), '[]')
        from generate_series(0, ${count - 1}::int) as numbered, lateral (${first}) as known
      )`,
    ),
    /** The last position that the sequence has given. */
    assigned: computed(
      number,
      sql`coalesce((
        select last_value from pg_sequences
        where schemaname = ${schema} and sequencename = ${`${name}_position_seq`}
      ), 0)::float8`,
    ),
  });
}
