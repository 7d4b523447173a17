/** The database's time, for what a process decides by itself: as measured, and what has passed since, monotonically. */
import { performance } from "node:perf_hooks";
import { sql } from "drizzle-orm";
import type { Clock } from "../base/clock.ts";
import { every, type Loop } from "../base/loop.ts";
import type { Database } from "./database.ts";
import { number } from "./sql/readers.ts";
import { computed, epochMs, rows, selection } from "./sql/statements.ts";

/** Milliseconds beyond which an offset is a mistake of somebody's, and is reported. */
const reportedMs = 5_000;

const measureEveryMs = 60_000;

/** Milliseconds by which the process's clock and the monotonic one may come apart before the database is asked. */
const apartMs = 1_000;
const compareEveryMs = 1_000;

/** Milliseconds of a round trip beyond which its middle says nothing about the database's clock. */
const longestRoundTripMs = 2_000;

const databaseTime = selection({
  ms: computed(number, epochMs(sql`clock_timestamp()`)),
});

interface DatabaseClock extends Clock {
  /** Measures the database's time, in the middle of the round trip. */
  measure(): Promise<void>;
  /** Measures it every minute, and within a second where that is not enough. */
  start(): Loop;
}

interface Dependencies {
  readonly db: Pick<Database, "execute">;
  readonly clock: Clock;
  /** Called with an offset beyond five seconds, in milliseconds; negative if the process is ahead. */
  readonly report: (offsetMs: number) => void;
}

/** The clocks at one moment, in milliseconds. */
interface Measurement {
  readonly database: number;
  readonly process: number;
  /** The monotonic clock, performance.now(). */
  readonly at: number;
}

/** The process's clock until it has been measured; goes on from the last measurement while the database is away. */
export function createDatabaseClock({ db, clock, report }: Dependencies): DatabaseClock {
  let last: Measurement | undefined;

  async function measure(): Promise<void> {
    const [sentAt, started] = [clock.now(), performance.now()];
    const [row] = await rows(db, databaseTime, sql`select ${databaseTime}`);
    const roundTripMs = performance.now() - started;
    if (!row || roundTripMs > longestRoundTripMs) return;
    last = { database: row.ms, process: sentAt + roundTripMs / 2, at: started + roundTripMs / 2 };
    const offsetMs = Math.round(last.database - last.process);
    if (Math.abs(offsetMs) > reportedMs) report(offsetMs);
  }

  function isDue(): boolean {
    if (!last) return true;
    const passedMs = performance.now() - last.at;
    return passedMs >= measureEveryMs || Math.abs(clock.now() - last.process - passedMs) > apartMs;
  }

  return {
    now: () => (last ? Math.floor(last.database + performance.now() - last.at) : clock.now()),
    measure,
    start: () =>
      every(
        compareEveryMs,
        async () => {
          if (isDue()) await measure();
        },
        () => undefined,
      ),
  };
}
