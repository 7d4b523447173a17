/** Counters of attempts as rows of the database. */
import { type SQL, sql } from "drizzle-orm";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { integer, nullable, number, text } from "../../platform/database/readers.ts";
import { computed, rows, selection } from "../../platform/database/statements.ts";
import { attempts } from "../schema.ts";
import type { AttemptCounters, AttemptRule, Counter, KeyOf } from "./attempt-counters.ts";

const { key, points, expire } = names(attempts);

const outcome = selection({
  count: computed(nullable(integer), sql`count`),
  window: computed(nullable(text), sql`window_end`),
  fullKey: computed(nullable(text), sql`full_key`),
  waitSeconds: computed(nullable(number), sql`wait`),
});

export function createDatabaseCounters(db: Database, keyOf: KeyOf): AttemptCounters {
  /** @param window as the statement that counted gave it */
  async function withdraw(counter: Counter, window: string): Promise<void> {
    await db.execute(sql`
      update ${attempts} set ${points} = ${points} - 1
      where ${key} = ${keyOf(counter)} and ${expire} = ${window}::timestamptz and ${points} > 0`);
  }

  return {
    async begin(counter, others = []) {
      const byKey = new Map([counter, ...others].map((one) => [keyOf(one), one]));
      // Nothing is returned if other processes filled the counter while the statement waited for its row; then
      // it is full, and the next try says until when.
      for (;;) {
        const [found] = await rows(db, outcome, countUnlessFull(keyOf(counter), counter.rule, byKey));
        const full = byKey.get(found?.fullKey ?? "");
        if (full) return { counter: full, waitSeconds: found?.waitSeconds ?? 0 };
        const { count, window } = found ?? {};
        if (typeof count === "number" && typeof window === "string")
          return { counter, count, withdraw: () => withdraw(counter, window) };
      }
    },

    async clear(counters) {
      await db.execute(
        sql`delete from ${attempts} where ${key} = any(${arrayLiteral(counters.map(keyOf))}::text[])`,
      );
    },
  };
}

/**
 * The look for full counters comes first and only reads: an insert that does nothing for a full counter would lock
 * its row all the same, and a flood of refused guesses would queue for that lock.
 */
function countUnlessFull(ownKey: string, rule: AttemptRule, counters: ReadonlyMap<string, Counter>): SQL {
  const keys = arrayLiteral([...counters.keys()]);
  const limits = `{${[...counters.values()].map((one) => one.rule.failures).join(",")}}`;
  const known = names(attempts, "known");
  return sql`
    with full_counter as materialized (
      select ${known.key} as full_key, extract(epoch from ${known.expire} - now())::float8 as wait
      from ${attempts} known
      join unnest(${keys}::text[], ${limits}::int[]) as rule (counter_key, most) on ${known.key} = rule.counter_key
      where ${known.expire} > now() and ${known.points} >= rule.most
      order by wait desc limit 1
    ), counted as (
      insert into ${attempts} as known (${key}, ${points}, ${expire})
      select ${ownKey}, 1, now() + ${rule.windowSeconds}::int * interval '1 second'
      where not exists (select from full_counter)
      on conflict (${key}) do update
      set ${points} = case when ${known.expire} > now() then ${known.points} + 1 else 1 end,
        ${expire} = case when ${known.expire} > now() then ${known.expire} else excluded.${expire} end
      where ${known.expire} <= now() or ${known.points} < ${rule.failures}::int
      returning ${known.points} as count, ${known.expire}::text as window_end
    )
    select ${outcome} from (select) as one left join counted on true left join full_counter on true`;
}
