/**
 * The limit of how often a user may save devices: a number of times a minute, which may come at once, by the Generic
 * Cell Rate Algorithm (ITU-T I.371). Kept is the moment at which the user may again make all calls of a minute.
 */
import { createHash, randomUUID } from "node:crypto";
import { LRUCache } from "lru-cache";
import * as v from "valibot";
import type { Clock } from "../../platform/base/clock.ts";
import { ErrorKinds, ServiceError } from "../../platform/base/errors.ts";
import { type Cache, unlessAway } from "../../platform/cache/cache.ts";
import type { Devices } from "./devices.ts";

const minuteMs = 60_000;
/** The most users that a process counts; with more in a minute, the counts of those who called longest ago are lost. */
const maxUsers = 100_000;
/** The largest error of a sum of fractions, in milliseconds. */
const rounding = 0.001;

export interface SaveRate {
  /** Counts a save of the user, if it is allowed now. @returns 0, or the milliseconds until it is allowed */
  take(userId: string): Promise<number>;
}

/** @returns devices whose `save` also throws `too_many_requests`, before it uses the database */
export function limitSaves(devices: Devices, rate: SaveRate): Devices {
  return {
    ...devices,
    async save(userId, device) {
      const waitMs = await rate.take(userId);
      if (waitMs > 0) throw tooMany(waitMs);
      await devices.save(userId, device);
    },
  };
}

function tooMany(waitMs: number): ServiceError {
  const seconds = Math.max(1, Math.ceil(waitMs / 1000));
  const detail = `Devices are saved too often. Wait ${seconds} s; once at each start of the app is enough.`;
  return new ServiceError(ErrorKinds.tooManyRequests, detail, { retryAfterSeconds: seconds });
}

/** The limit of one process, which counts exactly; behind a load balancer a user has the sum of the limits. */
export function saveRateOfProcess(perMinute: number, clock: Clock): SaveRate {
  const intervalMs = minuteMs / perMinute;
  const fullAt = new LRUCache<string, number>({ max: maxUsers });
  return {
    async take(userId) {
      const now = clock.now();
      const known = fullAt.get(userId) ?? now;
      // The moment is never further away than a minute, unless the clock was set back.
      const isCurrent = known > now && known <= now + minuteMs + rounding;
      const next = (isCurrent ? known : now) + intervalMs;
      const waitMs = next - now - minuteMs;
      if (waitMs > rounding) return waitMs;
      fullAt.set(userId, next);
      return 0;
    },
  };
}

/** The same in one script of the cache, by its clock. `ARGV`: milliseconds of a save. Returns milliseconds to wait. */
const takeScript = `
local minute, rounding = ${minuteMs}, ${rounding}
local time = redis.call("TIME")
local now = time[1] * 1000 + time[2] / 1000
local known = tonumber(redis.call("GET", KEYS[1]) or now)
if known < now or known > now + minute + rounding then known = now end
local next = known + ARGV[1]
local wait = next - now - minute
if wait > rounding then return math.ceil(wait) end
redis.call("SET", KEYS[1], string.format("%.3f", next), "PX", math.ceil(next - now))
return 0`;

/** The limit of all processes together. While the cache is away, each process counts by itself. */
export function sharedSaveRate(cache: Cache, perMinute: number, ofProcess: SaveRate): SaveRate {
  const intervalMs = minuteMs / perMinute;
  return {
    take: (userId) =>
      unlessAway(
        () => takeShared(cache, userId, intervalMs),
        () => ofProcess.take(userId),
      ),
  };
}

async function takeShared(cache: Pick<Cache, "run">, userId: string, intervalMs: number): Promise<number> {
  return v.parse(v.number(), await cache.run(takeScript, [keyOf(userId)], [intervalMs]));
}

/** Runs once the commands that saves run in a cache. @throws if the cache refuses one */
export async function verifySaveCommands(cache: Pick<Cache, "run">): Promise<void> {
  await takeShared(cache, `rehearsal ${randomUUID()}`, 1);
}

/** The key of a user's count: short, however long the id is. */
function keyOf(userId: string): string {
  return `saves:${createHash("sha256").update(userId).digest("base64url")}`;
}
