/**
 * Limits on guessing: passwords, one-time codes, client secrets. Counted in the database, so that they hold
 * across processes; keyed by hashes under a secret of the settings, so that the table names nobody. A limit looks at nothing that the
 * caller chooses beside the account itself: not at X-Forwarded-For, nor at the spelling of a phone number.
 */
import { createHmac, hkdfSync } from "node:crypto";
import { RateLimiterDrizzle, RateLimiterRes } from "rate-limiter-flexible";
import { tooManyRequests } from "../../platform/base/errors.ts";
import type { Database } from "../../platform/database/database.ts";
import { attempts } from "../schema.ts";

/** How many failures in how many seconds. The lock-out lasts at most as long as the window. */
export interface AttemptRule {
  readonly name: string;
  readonly failures: number;
  readonly windowSeconds: number;
}

/** The rules in force. */
export const attemptRules = {
  /** Password, by username. */
  password: { name: "password", failures: 10, windowSeconds: 300 },
  /** One-time code, by phone number. */
  code: { name: "code", failures: 10, windowSeconds: 300 },
  /**
   * Failures of all accounts together, by client: bounds guessing one password against many accounts. An
   * account without a failure of its own gets past it, so that nobody can shut an application's users out.
   */
  client: { name: "client", failures: 1000, windowSeconds: 60 },
  /** Wrong secrets, by client id. */
  secret: { name: "secret", failures: 20, windowSeconds: 60 },
} as const satisfies Record<string, AttemptRule>;

/** One rule, applied to many accounts. Each refusal is `too_many_requests` with the seconds to wait. */
export interface AttemptLimit {
  /**
   * Counts an attempt before it is known how it ends, so that parallel guesses cannot outrun the count.
   * @returns how many count now, this one among them
   */
  begin(account: string): Promise<number>;
  /** The attempt was right: the count starts anew. */
  succeed(account: string): Promise<void>;
  /** The attempt was right after all, or could not be judged as a dependency was away: it does not count. */
  withdraw(account: string): Promise<void>;
}

/** @param secret one that every process has; the keys of the counters are made under it */
export function createAttemptLimit(db: Database, secret: string, rule: AttemptRule): AttemptLimit {
  const limiter = new RateLimiterDrizzle({
    storeClient: db,
    schema: attempts,
    keyPrefix: rule.name,
    points: rule.failures,
    duration: rule.windowSeconds,
    clearExpiredByTimeout: false,
  });
  const key = Buffer.from(hkdfSync("sha256", secret, "", "gatepost attempts", 32));
  const keyOf = (account: string) => createHmac("sha256", key).update(account).digest("base64url");

  /** The library rejects with its result where a limit is reached, and with an Error where the store fails. */
  function refuse(reason: unknown): never {
    if (reason instanceof RateLimiterRes) throw tooManyRequests(reason.msBeforeNext / 1000);
    throw reason;
  }

  return {
    begin: async (account) => {
      try {
        const { consumedPoints } = await limiter.consume(keyOf(account));
        return consumedPoints;
      } catch (reason) {
        // The library counts what it refuses, too; an attempt that was not made is no failure.
        if (reason instanceof RateLimiterRes) await limiter.reward(keyOf(account));
        return refuse(reason);
      }
    },
    succeed: async (account) => {
      await limiter.delete(keyOf(account));
    },
    withdraw: async (account) => {
      await limiter.reward(keyOf(account));
    },
  };
}
