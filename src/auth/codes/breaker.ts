/**
 * The breaker of each prefix of numbers: where hardly anybody uses the codes, somebody is paid for messages to numbers
 * that nobody reads.
 */
import { sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { integer, names, nullable, number } from "../../platform/database/sql/readers.ts";
import { computed, onlyRow, selection } from "../../platform/database/sql/statements.ts";
import { openBreakers, sentCodes } from "../codes-schema.ts";
import { AuthEvents, recordCodesEvent } from "../events.ts";
import type { CodeObserver } from "./code-observer.ts";
import { type CodeRefusal, limited } from "./code-request.ts";
import { codeSeconds } from "./sessions.ts";

/** Codes that are looked at: the newest that were used or can no longer be. */
const looked = 50;
/** How many of them are used, at least, while the breaker is closed. */
const leastUsed = 10;
/** Seconds for which an open breaker lets nothing through. */
const shutSeconds = 600;
/** The share of codes that it lets through afterwards. */
const trialShare = 0.1;
/** Seconds after which a code that was refused by chance may be asked for again. */
const trialRetrySeconds = 60;

const sent = names(sentCodes);
const breaker = names(openBreakers);

const state = selection({
  decided: computed(integer, sql`count(*)::int`),
  used: computed(integer, sql`(count(*) filter (where ${sent.isUsed}))::int`),
  openSeconds: computed(nullable(number), sql`(select seconds from opened)`),
});

interface Dependencies {
  readonly db: Database;
  readonly observer: Pick<CodeObserver, "refused">;
  /** From 0 to 1. */
  readonly random: () => number;
}

/** Why numbers with this prefix get no code now; undefined: they get one. Opens and closes the breaker. */
export type BreakerRefusal = (prefix: string) => Promise<CodeRefusal | undefined>;

export function createBreakers({ db, observer, random }: Dependencies): BreakerRefusal {
  function refuse(seconds: number): CodeRefusal {
    observer.refused("breaker");
    return limited(seconds);
  }

  return async (prefix) => {
    const { decided, used, openSeconds } = await onlyRow(db, state, stateOf(prefix));
    if (decided < looked || used >= leastUsed) {
      if (openSeconds !== null) await db.execute(closing(prefix));
      return undefined;
    }
    if (openSeconds === null) {
      await db.execute(opening(prefix));
      return refuse(shutSeconds);
    }
    if (openSeconds < shutSeconds) return refuse(shutSeconds - openSeconds);
    return random() < trialShare ? undefined : refuse(trialRetrySeconds);
  };
}

const stateOf = (prefix: string) => sql`
  with opened as (
    select extract(epoch from now() - ${breaker.openedAt})::float8 as seconds from ${openBreakers}
    where ${breaker.prefix} = ${prefix}
  )
  select ${state} from (
    select ${sent.isUsed} from ${sentCodes}
    where ${sent.prefix} = ${prefix}
      and (${sent.isUsed} or ${sent.sentAt} < now() - ${codeSeconds}::int * interval '1 second')
    order by ${sent.sentAt} desc limit ${looked}::int
  ) as newest`;

const about = { prefix: breaker.prefix };

// Nothing is written, and no event, where another process has done the same before.
const opening = (prefix: string) => sql`
  with opened as (
    insert into ${openBreakers} (${breaker.prefix}, ${breaker.openedAt}) values (${prefix}, now())
    on conflict do nothing
    returning ${breaker.prefix}
  ) ${recordCodesEvent(AuthEvents.codesBreakerOpened, about, sql`from opened`)}`;

const closing = (prefix: string) => sql`
  with closed as (
    delete from ${openBreakers} where ${breaker.prefix} = ${prefix} returning ${breaker.prefix}
  ) ${recordCodesEvent(AuthEvents.codesBreakerClosed, about, sql`from closed`)}`;
