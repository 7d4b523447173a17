/**
 * Running time: what the database's clock would say if it stood still whenever the database could not be used.
 * Processes give the database a pulse; where it has stopped for some seconds, or the clock was set, running time goes
 * on from where it was. What has passed by the clock has surely passed once it has in running time too; for that,
 * pauses count for some days only.
 */
import { type SQL, sql } from "drizzle-orm";
import { type Loop, startLoop } from "../platform/base/loop.ts";
import type { Database } from "../platform/database/database.ts";
import { names } from "../platform/database/sql/readers.ts";
import { databasePulse } from "./schema.ts";

/** Milliseconds between two beats; those of several processes fall together. */
const beatMs = 1_000;
/** Seconds without a beat that count as a pause, all of them. Fewer may be due to load. */
const pauseSeconds = 3;
/**
 * Days of a period, in running time. A pause counts in the period in which it ends and in the next one: for longer than
 * a client may be away from the list, and than a proof that was redeemed could be presented again.
 */
const periodDays = 8;

const pulse = names(databasePulse, "pulse");
const { onlyRow, beatenAt, pausedFor, periodBeganAt, leastPausedFor, leastPausedForBefore } =
  names(databasePulse);

const now = sql`clock_timestamp()`;
/** Whether the clock is further from the last beat than this, on either side. */
const isApart = (by: SQL) => sql`${now} not between ${pulse.beatenAt} - ${by} and ${pulse.beatenAt} + ${by}`;

/** What the pulse has missed by now, if it counts; negative where the clock was set back. */
const missed = sql`
  case when ${isApart(sql`${pauseSeconds}::int * interval '1 second'`)}
    then ${now} - ${pulse.beatenAt} else interval '0' end`;

/** A span without days, of which two in a year have not 24 hours. */
const inSeconds = (span: SQL) => sql`(extract(epoch from ${span}) * interval '1 second')`;

/** By how much running time is behind the clock. */
const lag = inSeconds(sql`${pulse.pausedFor} + ${missed}`);

/** The moment now, in running time; by the clock where no process gives a pulse, as with the embedded database. */
export const runningNow = sql`(
  select ${now} - coalesce(max(${lag}), interval '0') from ${databasePulse} pulse)`;

/**
 * Now, less the pauses of this period and of the one before: what was due by then is due by the clock and by running
 * time. Where the clock was set back in these periods, nothing is added for that.
 */
export const surelyNow = sql`(
  select ${now} - coalesce(
    max(${inSeconds(sql`${lag} - least(${lag}, ${pulse.leastPausedFor}, ${pulse.leastPausedForBefore})`)}), interval '0')
  from ${databasePulse} pulse)`;

/** Whether a new period begins. */
const isNewPeriod = sql`
  (${now} - ${lag} >= ${pulse.periodBeganAt} + ${periodDays}::int * interval '1 day') is not false`;

// The time is asked once the row is locked: a beat that was held up must not take the place of a later one.
const beat = sql`
  insert into ${databasePulse} as pulse (${onlyRow}, ${beatenAt}, ${pausedFor})
  values (1, ${now}, interval '0')
  on conflict (${onlyRow}) do update set
    ${beatenAt} = ${now}, ${pausedFor} = ${lag},
    ${periodBeganAt} = case when ${isNewPeriod} then ${now} - ${lag} else ${pulse.periodBeganAt} end,
    ${leastPausedFor} = case when ${isNewPeriod} then ${lag} else least(${lag}, ${pulse.leastPausedFor}) end,
    ${leastPausedForBefore} =
      case when ${isNewPeriod} then ${pulse.leastPausedFor} else ${pulse.leastPausedForBefore} end
  where ${isApart(sql`${beatMs / 2}::int * interval '1 millisecond'`)}`;

/** Gives the database its pulse until it is stopped. A beat that fails is missed, which is what it is for. */
export function startPulse(db: Database): Loop {
  return startLoop(async () => {
    await db.execute(beat).catch(() => undefined);
    return beatMs;
  });
}
