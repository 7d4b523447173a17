/**
 * Counters of attempts: passwords, one-time codes, client secrets. They are rows of the database, so that a limit
 * holds across processes, and every decision is made on the database's clock, in the statement that counts. The
 * keys are HMACs under a secret of the settings, so that the table discloses no account.
 */
import { createHmac, hkdfSync } from "node:crypto";
import { type SQL, sql } from "drizzle-orm";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { integer, nullable, number, text } from "../../platform/database/readers.ts";
import { computed, rows, selection } from "../../platform/database/statements.ts";
import { attempts } from "../schema.ts";

/** How many attempts count in how many seconds. A window begins with its first attempt. */
export interface AttemptRule {
  readonly name: string;
  readonly failures: number;
  readonly windowSeconds: number;
}

/** One rule, applied to one account, client, or whatever else the rule is about. */
export interface Counter {
  readonly rule: AttemptRule;
  readonly subject: string;
}

/** An attempt that counts. */
export interface CountedAttempt {
  readonly counter: Counter;
  /** The number of attempts that count in this window, this one among them. */
  readonly count: number;
  /** Names the window, for `withdraw`. */
  readonly window: string;
}

/** A counter that has reached its limit. */
export interface FullCounter {
  readonly counter: Counter;
  /** Seconds until its window ends. */
  readonly waitSeconds: number;
}

export interface AttemptCounters {
  /**
   * Counts an attempt before its outcome is known, so that parallel guesses cannot exceed the limit. If the
   * counter, or one of `others`, is full, nothing is counted and nothing is written.
   */
  begin(counter: Counter, others?: readonly Counter[]): Promise<CountedAttempt | FullCounter>;
  /** Takes an attempt back. Without effect if its window has ended: it counts no more. */
  withdraw(attempt: CountedAttempt): Promise<void>;
  /** Sets counters to zero. */
  clear(counters: readonly Counter[]): Promise<void>;
}

export function isFull(result: CountedAttempt | FullCounter): result is FullCounter {
  return "waitSeconds" in result;
}

const { key, points, expire } = names(attempts);

const outcome = selection({
  count: computed(nullable(integer), sql`count`),
  window: computed(nullable(text), sql`window_end`),
  fullKey: computed(nullable(text), sql`full_key`),
  waitSeconds: computed(nullable(number), sql`wait`),
});

/** @param secret the same in every process; the keys of the counters are derived with it */
export function createAttemptCounters(db: Database, secret: string): AttemptCounters {
  const hmacKey = Buffer.from(hkdfSync("sha256", secret, "", "gatepost attempts", 32));
  const keyOf = ({ rule, subject }: Counter) =>
    `${rule.name}:${createHmac("sha256", hmacKey).update(subject).digest("base64url")}`;

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
        if (typeof count === "number" && typeof window === "string") return { counter, count, window };
      }
    },

    async withdraw({ counter, window }) {
      await db.execute(sql`
        update ${attempts} set ${points} = ${points} - 1
        where ${key} = ${keyOf(counter)} and ${expire} = ${window}::timestamptz and ${points} > 0`);
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
