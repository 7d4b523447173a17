/** Counters of attempts as rows of the database. */
import { type SQL, sql } from "drizzle-orm";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { batched } from "../../platform/database/sql/batched-lookup.ts";
import { integer, names, number, text } from "../../platform/database/sql/readers.ts";
import { computed, rows, selection } from "../../platform/database/sql/statements.ts";
import { attempts } from "../schema.ts";
import {
  type AttemptCounters,
  type AttemptRule,
  type Counter,
  type KeyOf,
  windowSlackSeconds,
} from "./attempt-counters.ts";

const { key, points, expire } = names(attempts);
const known = names(attempts, "known");

/** An attempt, by its counter and the end of its window as the statement that counted gave it. */
interface Counted {
  readonly counter: Counter;
  readonly window: string;
}

export interface DatabaseCounters extends AttemptCounters {
  /** Counts an attempt for each of the counters, in one commit, or for none if one is full. @returns whether it counts */
  countAll(counters: readonly Counter[]): Promise<boolean>;
}

/** Attempts of one counter share statements within a process: a client's is one row for all who sign in with it. */
export function createDatabaseCounters(db: Database, keyOf: KeyOf): DatabaseCounters {
  const look = batched({
    async load(keys: readonly string[]) {
      return new Map((await rows(db, looked, withKeys(keys))).map((row) => [row.key, row]));
    },
  });

  const countJoined = joined(keyOf, async (counter: Counter, calls: number) => {
    const [found] = await rows(db, counted, countUnlessFull(keyOf(counter), counter.rule, calls));
    if (!found) return undefined;
    const { failures } = counter.rule;
    const excess = found.count - failures;
    // What cannot be taken back counts, until the window ends: that is the safe side.
    if (excess > 0) await withdraw({ counter, window: found.window }, excess).catch(() => undefined);
    return { before: found.count - calls, window: found.window };
  });

  const withdrawJoined = joined(({ counter, window }: Counted) => `${keyOf(counter)} ${window}`, withdraw);

  async function withdraw({ counter, window }: Counted, times: number): Promise<void> {
    await db.execute(sql`
      update ${attempts} set ${points} = greatest(${points} - ${times}::int, 0)
      where ${key} = ${keyOf(counter)} and ${expire} = ${window}::timestamptz`);
  }

  return {
    async full(counters) {
      const known = await Promise.all(counters.map((counter) => look(keyOf(counter))));
      return counters.flatMap((counter, index) => {
        const { failures, windowSeconds } = counter.rule;
        const { points = 0, waitSeconds = 0 } = known[index] ?? {};
        const isFull = points >= failures && waitSeconds <= windowSeconds + windowSlackSeconds;
        return isFull ? [{ counter, waitSeconds }] : [];
      });
    },

    async count(counter) {
      const { result, ordinal } = await countJoined(counter);
      if (!result || result.before + ordinal >= counter.rule.failures) return undefined;
      const count = result.before + ordinal + 1;
      const attempt = { counter, window: result.window };
      return { count, withdraw: async () => void (await withdrawJoined(attempt)) };
    },

    async countAll(counters) {
      const limits = new Map(counters.map((counter) => [keyOf(counter), counter.rule]));
      return db
        .transaction(async (tx) => {
          const all = await rows(tx, countedKey, countEach(limits));
          if (all.some((one) => one.count > (limits.get(one.key)?.failures ?? 0))) throw new LimitReached();
          return true;
        })
        .catch((error: unknown) => {
          if (error instanceof LimitReached) return false;
          throw error;
        });
    },

    async clear(counters) {
      await db.execute(
        sql`delete from ${attempts} where ${key} = any(${arrayLiteral(counters.map(keyOf))}::text[])`,
      );
    },
  };
}

const looked = selection({
  key: known.key,
  points: known.points,
  waitSeconds: computed(number, sql`extract(epoch from ${known.expire} - now())::float8`),
});

/** The counters of these keys whose windows have not ended. */
const withKeys = (keys: readonly string[]) => sql`
  select ${looked} from ${attempts} known
  where ${known.key} = any(${arrayLiteral(keys)}::text[]) and ${known.expire} > now()`;

/** Whether a window that is so many seconds long has begun and not ended. */
const isRunning = (windowSeconds: SQL) =>
  sql`(${known.expire} > now()
    and ${known.expire} <= now() + (${windowSeconds} + ${windowSlackSeconds}::int) * interval '1 second')`;

const counted = selection({
  count: computed(integer, sql`${known.points}`),
  window: computed(text, sql`${known.expire}::text`),
});

/** Counts attempts unless the counter is full; where they do not all fit in, it is beyond its limit afterwards. */
function countUnlessFull(ownKey: string, { failures, windowSeconds }: AttemptRule, times: number): SQL {
  const isOpen = isRunning(sql`${windowSeconds}::int`);
  const isFull = sql`${isOpen} and ${known.points} >= ${failures}::int`;
  return sql`
    insert into ${attempts} as known (${key}, ${points}, ${expire})
    select ${ownKey}, ${times}::int, now() + ${windowSeconds}::int * interval '1 second'
    where not exists (select from ${attempts} known where ${known.key} = ${ownKey} and ${isFull})
    on conflict (${key}) do update
    set ${points} = ${times}::int + case when ${isOpen} then ${known.points} else 0 end,
      ${expire} = case when ${isOpen} then ${known.expire} else excluded.${expire} end
    where (${isFull}) is not true
    returning ${counted}`;
}

/** Undoes the transaction. */
class LimitReached extends Error {}

const countedKey = selection({ key: known.key, count: computed(integer, sql`${known.points}`) });

/** Counts an attempt for each key, full or not. In the order of the keys, so that no two wait for each other. */
function countEach(limits: ReadonlyMap<string, AttemptRule>): SQL {
  const keys = arrayLiteral([...limits.keys()]);
  const seconds = arrayLiteral([...limits.values()].map(({ windowSeconds }) => String(windowSeconds)));
  const isOpen = sql`(${known.expire} > now()
    and ${known.expire} <= excluded.${expire} + ${windowSlackSeconds}::int * interval '1 second')`;
  return sql`
    insert into ${attempts} as known (${key}, ${points}, ${expire})
    select wanted.counter, 1, now() + wanted.seconds * interval '1 second'
    from unnest(${keys}::text[], ${seconds}::int[]) as wanted (counter, seconds) order by wanted.counter
    on conflict (${key}) do update
    set ${points} = 1 + case when ${isOpen} then ${known.points} else 0 end,
      ${expire} = case when ${isOpen} then ${known.expire} else excluded.${expire} end
    returning ${countedKey}`;
}

/** A call and those that have the same key, which share one piece of work. */
interface Joined<R> {
  /** Of the work that was done for all of them. */
  readonly result: R;
  /** Which of them this one is, from 0, in the order of arrival. */
  readonly ordinal: number;
}

type Waiting<R> = PromiseWithResolvers<Joined<R>>;

/**
 * Joins calls with the same key that come while work for it is under way: one further piece of work is done for all.
 * @param work done for so many calls; where it fails, all of them fail
 */
export function joined<T, R>(
  keyOf: (target: T) => string,
  work: (target: T, calls: number) => Promise<R>,
): (target: T) => Promise<Joined<R>> {
  /** Those that wait, by keys for which work is under way. */
  const waiting = new Map<string, Waiting<R>[]>();

  async function run(key: string, target: T, calls: readonly Waiting<R>[]): Promise<void> {
    try {
      const result = await work(target, calls.length);
      for (const [ordinal, call] of calls.entries()) call.resolve({ result, ordinal });
    } catch (error) {
      for (const call of calls) call.reject(error);
    }
    const next = waiting.get(key) ?? [];
    if (next.length === 0) waiting.delete(key);
    else {
      waiting.set(key, []);
      void run(key, target, next);
    }
  }

  return (target) => {
    const key = keyOf(target);
    const call: Waiting<R> = Promise.withResolvers();
    const others = waiting.get(key);
    if (others) others.push(call);
    else {
      waiting.set(key, []);
      void run(key, target, [call]);
    }
    return call.promise;
  };
}
