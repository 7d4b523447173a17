/** Counters of attempts in the cache that processes share. */
import { randomUUID } from "node:crypto";
import * as v from "valibot";
import { type Cache, unlessAway } from "../../platform/cache/cache.ts";
import type { AttemptCounters, Counter, KeyOf } from "./attempt-counters.ts";

/**
 * The milliseconds for which each key stays full; 0: it is not. A counter is a hash that expires with its window, with
 * the number of attempts and the moment when the window began. `ARGV`: for each key its limit, and the milliseconds of
 * its window.
 */
const look = `
local waits = {}
for number, key in ipairs(KEYS) do
  local limit, window = tonumber(ARGV[number * 2 - 1]), tonumber(ARGV[number * 2])
  local left = redis.call("PTTL", key)
  if tonumber(redis.call("HGET", key, "count") or 0) < limit then
    left = 0
  elseif left < 0 or left > window then
    redis.call("PEXPIRE", key, window)
    left = window
  end
  waits[number] = left
end
return waits`;

/** Counts, unless the key is full. `ARGV` as in `look`. Returns the count, 0 if it is full; and the window. */
const countUnlessFull = `
if tonumber(redis.call("HGET", KEYS[1], "count") or 0) >= tonumber(ARGV[1]) then return {0, ""} end
local now = redis.call("TIME")
if redis.call("HSETNX", KEYS[1], "window", now[1] .. "." .. now[2]) == 1 then
  redis.call("PEXPIRE", KEYS[1], ARGV[2])
end
local count = redis.call("HINCRBY", KEYS[1], "count", 1)
return {count, redis.call("HGET", KEYS[1], "window")}`;

const waits = v.array(v.number());
const counted = v.tuple([v.number(), v.string()]);

/** Takes an attempt back if its window (`ARGV`) is still that of the key. */
const takeBack = `
local found = redis.call("HMGET", KEYS[1], "window", "count")
if found[1] == ARGV[1] and tonumber(found[2]) > 0 then redis.call("HINCRBY", KEYS[1], "count", -1) end`;

const remove = `if #KEYS > 0 then redis.call("DEL", unpack(KEYS)) end`;

/** Every method rejects with CacheAwayError while the cache is away. */
export function createCacheCounters(cache: Pick<Cache, "run">, keyOf: KeyOf): AttemptCounters {
  const ruleOf = ({ rule }: Counter) => [rule.failures, rule.windowSeconds * 1000];
  return {
    async full(counters) {
      const response = v.parse(waits, await cache.run(look, counters.map(keyOf), counters.flatMap(ruleOf)));
      return counters.flatMap((counter, index) => {
        const waitMs = response[index] ?? 0;
        return waitMs > 0 ? [{ counter, waitSeconds: waitMs / 1000 }] : [];
      });
    },
    async count(counter) {
      const response = await cache.run(countUnlessFull, [keyOf(counter)], ruleOf(counter));
      const [count, window] = v.parse(counted, response);
      if (count === 0) return undefined;
      return {
        count,
        withdraw: async () => void (await cache.run(takeBack, [keyOf(counter)], [window])),
      };
    },
    async clear(counters) {
      await cache.run(remove, counters.map(keyOf), []);
    },
  };
}

/** Does once all that counters do in a cache: counts, finds the counter full, takes back, and clears. */
export async function rehearseCounting(cache: Pick<Cache, "run">): Promise<void> {
  const counters = createCacheCounters(cache, ({ rule, subject }) => `${rule.name}:${subject}`);
  const counter = { rule: { name: "rehearsal", failures: 1, windowSeconds: 1 }, subject: randomUUID() };
  const attempt = await counters.count(counter);
  await counters.full([counter]);
  await attempt?.withdraw();
  await counters.clear([counter]);
}

/** Counts in the cache, and while it is away in the database, which costs at most one further window of guesses. */
export function preferCache(inCache: AttemptCounters, inDatabase: AttemptCounters): AttemptCounters {
  const ignore = async () => undefined;
  return {
    full: (counters) =>
      unlessAway(
        () => inCache.full(counters),
        () => inDatabase.full(counters),
      ),
    count: (counter) =>
      unlessAway(
        async () => {
          const attempt = await inCache.count(counter);
          // One that cannot be taken back goes on counting.
          return attempt && { ...attempt, withdraw: () => unlessAway(attempt.withdraw, ignore) };
        },
        () => inDatabase.count(counter),
      ),
    // In both, as either may have counted.
    async clear(counters) {
      await Promise.all([unlessAway(() => inCache.clear(counters), ignore), inDatabase.clear(counters)]);
    },
  };
}
