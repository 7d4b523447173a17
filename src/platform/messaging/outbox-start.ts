/**
 * The position at which looks into an outbox begin. While somebody holds a snapshot, as a dump does for hours,
 * PostgreSQL keeps the rows of delivered events, also in the index, and a look that begins at the lowest position goes
 * past all of them. So a process remembers a position below which no event waits, nor can one come to wait:
 *
 * A sequence gives positions before their transactions commit, so a low one may become visible late. A position that
 * the sequence has passed becomes the start only once every transaction that was running then has ended, as the
 * snapshots of PostgreSQL show, however long that takes. No transaction is bounded in time as a whole.
 *
 * A process forgets the start when the server is another one than before, or was started anew, as commits may have been
 * lost with the old one. And now and then a look begins at the lowest position all the same.
 */
import { sql } from "drizzle-orm";
import { getTableConfig } from "drizzle-orm/pg-core";
import type { Executor } from "../database/database.ts";
import { names } from "../database/sql/names.ts";
import { boolean, nullable, number } from "../database/sql/readers.ts";
import { serverStart } from "../database/sql/server-start.ts";
import { computed, onlyRow, selection } from "../database/sql/statements.ts";
import { type DeliverableTypes, isKnown } from "./outbox.ts";
import type { OutboxTable } from "./outbox-table.ts";

/**
 * Milliseconds after which the transactions are noted that may have a lower position than the sequence has. A
 * transaction has no number of its own yet between its first position and the writing of that row.
 */
const settlingMs = 3_000;
/** Milliseconds between looks that begin at the lowest position, unless others are given. */
const usualFullLookMs = 300_000;

/** A position that may become the start. */
interface Candidate {
  /** The last position that the sequence had given. */
  readonly assigned: number;
  /** When its statement had ended, by performance.now(). */
  readonly readAt: number;
  /** Every transaction that may have a lower position has a lower number than this one; undefined until it is noted. */
  notedTransaction: number | undefined;
}

/** What a look at an outbox has found. */
interface Found {
  readonly isAny: boolean;
  /** Whether one of them can be delivered. */
  readonly isAnyKnown: boolean;
}

export class OutboxStart {
  #position = 0;
  #candidate: Candidate | undefined;
  #server: string | undefined;
  readonly #fullLookMs: number;
  #fullLookAt: number;

  /** @param fullLookMs milliseconds between looks that begin at the lowest position */
  constructor(fullLookMs = usualFullLookMs) {
    this.#fullLookMs = fullLookMs;
    this.#fullLookAt = performance.now() + fullLookMs;
  }

  /** No event waits below it. */
  get position(): number {
    return this.#position;
  }

  /** The next look begins at the lowest position. */
  forget(): void {
    this.#position = 0;
    this.#candidate = undefined;
  }

  /** Looks whether events wait, and moves the start. Rejects where the database does not respond. */
  async look(db: Executor, outbox: OutboxTable, subscribers: readonly DeliverableTypes[]): Promise<Found> {
    const isFull = performance.now() >= this.#fullLookAt;
    // One that fails is not repeated at once: it may take too long each time, and the start holds without it.
    if (isFull) this.#fullLookAt = performance.now() + this.#fullLookMs;
    const before = this.#position;
    const state = stateOf(outbox, subscribers, { from: isFull ? 0 : before, isNoting: this.#hasSettled() });
    const found = await onlyRow(db, state, sql`select ${state}`);
    // Unless it was forgotten meanwhile.
    if (this.#position === before) this.#move(found);
    return { isAny: found.oldest !== null, isAnyKnown: found.isAnyKnown };
  }

  /** Whether every transaction that may have a lower position than the candidate has a number by now. */
  #hasSettled(): boolean {
    const candidate = this.#candidate;
    if (!candidate || candidate.notedTransaction !== undefined) return false;
    return performance.now() - candidate.readAt >= settlingMs;
  }

  #move({ server, oldest, assigned, oldestTransaction, ownTransaction }: State): void {
    if (server !== this.#server || assigned + 1 < this.#position) this.forget();
    this.#server = server;
    if (oldest !== null && oldest < this.#position) this.#position = oldest;
    const candidate = this.#candidate;
    if (!candidate) {
      this.#candidate = { assigned, readAt: performance.now(), notedTransaction: undefined };
    } else if (candidate.notedTransaction === undefined) {
      candidate.notedTransaction = ownTransaction ?? undefined;
    } else if (oldestTransaction >= candidate.notedTransaction) {
      this.#position = Math.max(this.#position, Math.min(oldest ?? Infinity, candidate.assigned + 1));
      this.#candidate = undefined;
    }
  }
}

/** What one look reads, in one snapshot. */
interface State {
  readonly server: string;
  /** The lowest position of an event that waits; null if none does. */
  readonly oldest: number | null;
  /** The last position that the sequence has given. */
  readonly assigned: number;
  /** All transactions with a lower number have ended, and what they wrote is visible. */
  readonly oldestTransaction: number;
  /** The number that this look was given, higher than that of every transaction that had one; null if it took none. */
  readonly ownTransaction: number | null;
}

interface Look {
  /** The lowest position that is looked at. */
  readonly from: number;
  /** Whether the look takes a transaction number, which a transaction that only reads does not have by itself. */
  readonly isNoting: boolean;
}

function stateOf(outbox: OutboxTable, subscribers: readonly DeliverableTypes[], { from, isNoting }: Look) {
  const { position } = names(outbox);
  const { schema, name } = getTableConfig(outbox);
  const waiting = sql`from ${outbox} where ${position} >= ${from}::bigint`;
  return selection({
    server: serverStart,
    oldest: computed(
      nullable(number),
      sql`(select ${position}::float8 as lowest ${waiting} order by ${position} limit 1)`,
    ),
    // In the order of the index: otherwise the planner could as well go through the whole table.
    isAnyKnown: computed(
      boolean,
      sql`(select ${position} ${waiting} and ${isKnown(outbox, subscribers)} order by ${position} limit 1) is not null`,
    ),
    assigned: computed(
      number,
      sql`coalesce((
        select last_value from pg_sequences
        where format('%I.%I', schemaname, sequencename) = pg_get_serial_sequence(format('%I.%I', ${schema}::text, ${name}::text), 'position')
      ), 0)::float8`,
    ),
    oldestTransaction: computed(number, sql`pg_snapshot_xmin(pg_current_snapshot())::text::float8`),
    ownTransaction: computed(
      nullable(number),
      isNoting ? sql`pg_current_xact_id()::text::float8` : sql`null::float8`,
    ),
  });
}
