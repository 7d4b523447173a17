/**
 * How often a user may save devices: so many times a minute, which may come at once. An app does so when it starts, so
 * what comes more often is a loop of a broken app, or an attack on the table.
 *
 * Each process counts by itself, exactly; behind a load balancer a user has the sum. The limit is there to bound what one
 * user costs, and that bound need not be exact over processes, which would take a write for each call.
 */
import { LRUCache } from "lru-cache";
import type { Clock } from "../../platform/base/clock.ts";
import { ErrorKinds, ServiceError } from "../../platform/base/errors.ts";
import type { Devices } from "./devices.ts";

const minuteMs = 60_000;
/** Users that are counted; of more than that in a minute, the ones who were silent longest begin anew. */
const maxUsers = 100_000;
/** Milliseconds by which sums of fractions may be wrong. */
const rounding = 0.001;

function tooMany(waitMs: number): ServiceError {
  const seconds = Math.max(1, Math.ceil(waitMs / 1000));
  const detail = `Devices are saved too often. Wait ${seconds} s; once at each start of the app is enough.`;
  return new ServiceError(ErrorKinds.tooManyRequests, detail, { retryAfterSeconds: seconds });
}

/**
 * The devices, saved by a user so many times a minute at most (the Generic Cell Rate Algorithm of ITU-T I.371: of each
 * user only one moment is kept, at which all of the allowance is there again).
 * @returns devices whose `save` throws `too_many_requests` as well, before it has cost anything
 */
export function limitSaves(devices: Devices, perMinute: number, clock: Clock): Devices {
  const intervalMs = minuteMs / perMinute;
  const fullAt = new LRUCache<string, number>({ max: maxUsers });
  return {
    ...devices,
    async save(userId, device) {
      const now = clock.now();
      const known = fullAt.get(userId) ?? now;
      // It is never further away than this, unless the clock was set back.
      const isCurrent = known > now && known <= now + minuteMs + rounding;
      const next = (isCurrent ? known : now) + intervalMs;
      const waitMs = next - now - minuteMs;
      if (waitMs > rounding) throw tooMany(waitMs);
      fullAt.set(userId, next);
      await devices.save(userId, device);
    },
  };
}
