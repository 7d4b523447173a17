/** Counters of attempts in the cache that processes share. */
import { randomUUID } from "node:crypto";
import * as v from "valibot";
import { type Cache, unlessAway } from "../../platform/cache/cache.ts";
import { type AttemptCounters, isFull, type KeyOf } from "./attempt-counters.ts";

/**
 * Counts in the first key, unless one of the keys is full. A counter is a hash that expires with its window: the number
 * of attempts, and the moment when the window began, which names it.
 *
 * A key that would be there for longer than its window tells that the server's clock was set back: from then on it is
 * there for one window, and nobody is locked out for as long as the clock was set back.
 *
 * `ARGV`: for each key its limit, and the milliseconds of its window. Returns the number of the full key that is full for
 * longest, or 0; its milliseconds; the count; the window.
 */
const countUnlessFull = `
local full, wait = 0, 0
for number, key in ipairs(KEYS) do
  local limit, window = tonumber(ARGV[number * 2 - 1]), tonumber(ARGV[number * 2])
  local count = tonumber(redis.call("HGET", key, "count") or 0)
  if count >= limit then
    local left = redis.call("PTTL", key)
    if left > window then
      redis.call("PEXPIRE", key, window)
      left = window
    end
    if full == 0 or left > wait then full, wait = number, left end
  end
end
if full > 0 then return {full, wait, 0, ""} end
local now = redis.call("TIME")
if redis.call("HSETNX", KEYS[1], "window", now[1] .. "." .. now[2]) == 1 then
  redis.call("PEXPIRE", KEYS[1], ARGV[2])
end
local count = redis.call("HINCRBY", KEYS[1], "count", 1)
return {0, 0, count, redis.call("HGET", KEYS[1], "window")}`;

const outcome = v.tuple([v.number(), v.number(), v.number(), v.string()]);

/** Takes an attempt back if its window (`ARGV`) is still that of the key. */
const takeBack = `
local found = redis.call("HMGET", KEYS[1], "window", "count")
if found[1] == ARGV[1] and tonumber(found[2]) > 0 then redis.call("HINCRBY", KEYS[1], "count", -1) end`;

const remove = `if #KEYS > 0 then redis.call("DEL", unpack(KEYS)) end`;

/** Every method rejects with CacheAwayError while the cache is away. */
export function createCacheCounters(cache: Pick<Cache, "run">, keyOf: KeyOf): AttemptCounters {
  return {
    async begin(counter, others = []) {
      const all = [counter, ...others];
      const values = all.flatMap(({ rule }) => [rule.failures, rule.windowSeconds * 1000]);
      const reply = await cache.run(countUnlessFull, all.map(keyOf), values);
      const [full, waitMs, count, window] = v.parse(outcome, reply);
      const fullCounter = all[full - 1];
      if (fullCounter) return { counter: fullCounter, waitSeconds: waitMs / 1000 };
      return {
        counter,
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
  const counted = await counters.begin(counter);
  await counters.begin(counter);
  if (!isFull(counted)) await counted.withdraw();
  await counters.clear([counter]);
}

/**
 * Counts in the cache, and while it is away in the database: then each limit is what it is in either, and a window whose
 * counts were lost costs at most one further window of guesses. Nobody is locked out by a cache that is away.
 */
export function preferCache(inCache: AttemptCounters, inDatabase: AttemptCounters): AttemptCounters {
  const ignore = async () => undefined;
  return {
    begin: (counter, others) =>
      unlessAway(
        async () => {
          const result = await inCache.begin(counter, others);
          if (isFull(result)) return result;
          // One that cannot be taken back goes on counting.
          return { ...result, withdraw: () => unlessAway(result.withdraw, ignore) };
        },
        () => inDatabase.begin(counter, others),
      ),
    // In both, as either may have counted.
    async clear(counters) {
      await Promise.all([unlessAway(() => inCache.clear(counters), ignore), inDatabase.clear(counters)]);
    },
  };
}
