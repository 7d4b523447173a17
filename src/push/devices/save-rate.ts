/**
 * How often a user may save devices: so many times a minute, which may come at once. An app does so when it starts, so
 * what comes more often is a loop of a broken app, or an attack on the table.
 *
 * It is the Generic Cell Rate Algorithm of ITU-T I.371: of each user only one moment is kept, at which all of the allowance
 * is there again.
 */
import { createHash, randomUUID } from "node:crypto";
import { LRUCache } from "lru-cache";
import * as v from "valibot";
import type { Clock } from "../../platform/base/clock.ts";
import { ErrorKinds, ServiceError } from "../../platform/base/errors.ts";
import { type Cache, unlessAway } from "../../platform/cache/cache.ts";
import type { Devices } from "./devices.ts";

const minuteMs = 60_000;
/** Users that a process counts; of more than that in a minute, the ones who were silent longest begin anew. */
const maxUsers = 100_000;
/** Milliseconds by which sums of fractions may be wrong. */
const rounding = 0.001;

export interface SaveRate {
  /** Counts a save of the user, if it is allowed now. @returns 0, or the milliseconds until it is allowed */
  take(userId: string): Promise<number>;
}

/** @returns devices whose `save` throws `too_many_requests` as well, before it has cost anything */
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

/**
 * Each process counts by itself, exactly; behind a load balancer a user has the sum. The limit is there to bound what one
 * user costs, and that bound need not be exact over processes, which would take a write to the database for each call.
 */
export function saveRateOfProcess(perMinute: number, clock: Clock): SaveRate {
  const intervalMs = minuteMs / perMinute;
  const fullAt = new LRUCache<string, number>({ max: maxUsers });
  return {
    async take(userId) {
      const now = clock.now();
      const known = fullAt.get(userId) ?? now;
      // It is never further away than this, unless the clock was set back.
      const isCurrent = known > now && known <= now + minuteMs + rounding;
      const next = (isCurrent ? known : now) + intervalMs;
      const waitMs = next - now - minuteMs;
      if (waitMs > rounding) return waitMs;
      fullAt.set(userId, next);
      return 0;
    },
  };
}

/** The same in one step of the cache, on its clock. `ARGV`: the milliseconds of a save. Returns the whole ones to wait. */
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

/** All processes together. While the cache is away, each of them counts by itself. */
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

/** Does once what saves do in a cache. */
export async function rehearseSaving(cache: Pick<Cache, "run">): Promise<void> {
  await takeShared(cache, `rehearsal ${randomUUID()}`, 1);
}

/** Short, however long the id is. */
function keyOf(userId: string): string {
  return `saves:${createHash("sha256").update(userId).digest("base64url")}`;
}
