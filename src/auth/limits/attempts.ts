/**
 * Limits on guessing: passwords, one-time codes, client secrets. Attempts are counted in the database, so that
 * the limits hold across processes. The keys of the counters are HMACs under a secret of the settings, so that
 * the table discloses no account. A key depends on the account and nothing else that the caller can vary: not
 * on X-Forwarded-For, nor on the spelling of a phone number.
 */
import { createHmac, hkdfSync } from "node:crypto";
import { RateLimiterDrizzle, RateLimiterRes } from "rate-limiter-flexible";
import { tooManyRequests } from "../../platform/base/errors.ts";
import type { Database } from "../../platform/database/database.ts";
import { attempts } from "../schema.ts";

/** How many failures are allowed in how many seconds. The lock-out lasts at most as long as the window. */
export interface AttemptRule {
  readonly name: string;
  readonly failures: number;
  readonly windowSeconds: number;
}

/** The rules of this service. */
export const attemptRules = {
  /** Password, by username. */
  password: { name: "password", failures: 10, windowSeconds: 300 },
  /** One-time code, by phone number. */
  code: { name: "code", failures: 10, windowSeconds: 300 },
  /**
   * Failures of all accounts together, by client: bounds guessing one password against many accounts. The
   * pipeline exempts an account without a failure of its own, so that an attacker cannot lock out all users
   * of an application.
   */
  client: { name: "client", failures: 1000, windowSeconds: 60 },
  /** Wrong secrets, by client id. */
  secret: { name: "secret", failures: 20, windowSeconds: 60 },
} as const satisfies Record<string, AttemptRule>;

/** One rule, applied to many accounts. A refusal throws `too_many_requests` with the seconds to wait. */
export interface AttemptLimit {
  /**
   * Counts an attempt before its outcome is known, so that parallel guesses cannot exceed the limit.
   * @returns the number of attempts that count now, including this one
   */
  begin(account: string): Promise<number>;
  /** Records that the attempt succeeded: the count starts from zero. */
  succeed(account: string): Promise<void>;
  /** Takes the attempt back: it succeeded, or could not be checked because a dependency was unavailable. */
  withdraw(account: string): Promise<void>;
}

/** @param secret the same in every process; the keys of the counters are derived with it */
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

  /** The library rejects with a RateLimiterRes if a limit is reached, and with an Error if the store fails. */
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
        // The library also counts attempts that it refuses; take that back, as the attempt was not made.
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
