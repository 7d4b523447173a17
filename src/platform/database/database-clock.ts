/**
 * The time of the database, for what a process decides by itself: times in tokens that it signs and verifies. It is
 * the process's clock with an offset, which is measured anew every minute.
 */
import { performance } from "node:perf_hooks";
import { sql } from "drizzle-orm";
import type { Clock } from "../base/clock.ts";
import { every, type Loop } from "../base/loop.ts";
import type { Database } from "./database.ts";
import { number } from "./readers.ts";
import { computed, rows, selection } from "./statements.ts";

/** Milliseconds beyond which an offset is a mistake of somebody's, and is reported. */
const reportedMs = 5_000;

const measureEveryMs = 60_000;

/** Milliseconds of a round trip beyond which its middle says nothing about the database's clock. */
const longestRoundTripMs = 2_000;

const databaseTime = selection({
  ms: computed(number, sql`(extract(epoch from clock_timestamp()) * 1000)::float8`),
});

/** A clock that follows the database's. */
interface DatabaseClock extends Clock {
  /** Measures the offset: the database's time, less the process's in the middle of the round trip. */
  measure(): Promise<void>;
  /** Measures it every minute. */
  start(): Loop;
}

interface Dependencies {
  readonly db: Pick<Database, "execute">;
  /** The process's. */
  readonly clock: Clock;
  /** Is told an offset, in milliseconds, that is beyond five seconds; negative where the process is ahead. */
  readonly report: (offsetMs: number) => void;
}

/** The offset is 0 until it has been measured, and stays as it was while the database does not respond. */
export function createDatabaseClock({ db, clock, report }: Dependencies): DatabaseClock {
  let offsetMs = 0;

  async function measure(): Promise<void> {
    const [sentAt, started] = [clock.now(), performance.now()];
    const [row] = await rows(db, databaseTime, sql`select ${databaseTime}`);
    // By a clock that is not set meanwhile.
    const roundTripMs = performance.now() - started;
    if (!row || roundTripMs > longestRoundTripMs) return;
    offsetMs = Math.round(row.ms - (sentAt + roundTripMs / 2));
    if (Math.abs(offsetMs) > reportedMs) report(offsetMs);
  }

  return {
    now: () => clock.now() + offsetMs,
    measure,
    start: () => every(measureEveryMs, measure, () => undefined),
  };
}
