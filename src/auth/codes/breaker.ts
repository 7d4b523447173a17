/**
 * The breaker of each prefix of numbers: where hardly anybody uses the codes, somebody is paid for messages to numbers
 * that nobody reads. It looks at an hour, so that nobody's nonsense holds for longer.
 */
import { sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { boolean, integer, names } from "../../platform/database/sql/readers.ts";
import { computed, onlyRow, selection } from "../../platform/database/sql/statements.ts";
import { openBreakers, sentCodes } from "../codes-schema.ts";
import { AuthEvents, recordCodesEvent } from "../events.ts";
import type { DatabaseCounters } from "../limits/database-counters.ts";
import type { CodeObserver } from "./code-observer.ts";
import { type CodeRefusal, limited } from "./code-request.ts";
import { codeSeconds } from "./sessions.ts";

/** Codes that are looked at: the newest that were used or can no longer be. */
const looked = 50;
/** How many of them are used, at least, while the breaker is closed. */
const leastUsed = 10;
/** What an open breaker lets through: a tenth of the limit of a prefix, for the first time after one window. */
const trials = { name: "code_trial", failures: 1, windowSeconds: 600 };
/** How many of these are used within an hour until it closes. */
const closingUses = 3;

const sent = names(sentCodes);
const breaker = names(openBreakers);

const state = selection({
  decided: computed(integer, sql`count(*)::int`),
  used: computed(integer, sql`(count(*) filter (where ${sent.isUsed}))::int`),
  isOpen: computed(boolean, sql`exists (select from opened)`),
});

interface Dependencies {
  readonly db: Database;
  readonly counters: Pick<DatabaseCounters, "count" | "full">;
  readonly observer: Pick<CodeObserver, "refused">;
}

/** Why numbers with this prefix get no code now; undefined: they get one. Opens and closes the breaker. */
export type BreakerRefusal = (prefix: string) => Promise<CodeRefusal | undefined>;

export function createBreakers({ db, counters, observer }: Dependencies): BreakerRefusal {
  return async (prefix) => {
    const { decided, used, isOpen } = await onlyRow(db, state, stateOf(prefix));
    if (isOpen ? used >= closingUses : decided < looked || used >= leastUsed) {
      if (isOpen) await db.execute(closing(prefix));
      return undefined;
    }
    if (!isOpen) await db.execute(opening(prefix));
    const trial = { rule: trials, subject: prefix };
    // The first window is that of the opening itself.
    if ((await counters.count(trial)) && isOpen) return undefined;
    const [full] = await counters.full([trial]);
    observer.refused("breaker");
    return limited(full?.waitSeconds ?? 1);
  };
}

const stateOf = (prefix: string) => sql`
  with opened as (select from ${openBreakers} where ${breaker.prefix} = ${prefix})
  select ${state} from (
    select ${sent.isUsed} from ${sentCodes}
    where ${sent.prefix} = ${prefix} and ${sent.sentAt} > now() - interval '1 hour'
      and (${sent.isUsed} or ${sent.sentAt} < now() - ${codeSeconds}::int * interval '1 second')
    order by ${sent.sentAt} desc limit ${looked}::int
  ) as newest`;

// An open breaker has seen nothing, so that it judges what it lets through. Nothing is written, and no event, where
// another process has done the same before.
const opening = (prefix: string) => sql`
  with opened as (
    insert into ${openBreakers} (${breaker.prefix}, ${breaker.openedAt}) values (${prefix}, now())
    on conflict do nothing
    returning ${breaker.prefix}
  ), forgotten as (
    delete from ${sentCodes} where ${sent.prefix} in (select ${breaker.prefix} from opened)
  ) ${recordCodesEvent(AuthEvents.codesBreakerOpened, { prefix: breaker.prefix }, sql`from opened`)}`;

const closing = (prefix: string) => sql`delete from ${openBreakers} where ${breaker.prefix} = ${prefix}`;
