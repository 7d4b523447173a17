/**
 * Removes what has expired, a bounded number of rows at a time. Any number of processes may run it at once:
 * every step is right however often it is done.
 */
import { sql } from "drizzle-orm";
import type { Clock } from "../platform/clock.ts";
import type { Database } from "../platform/database.ts";
import type { Logger } from "../platform/telemetry.ts";
import { removeExpiredAttempts } from "./limits/attempts.ts";
import { forgetSuccessors } from "./tokens/rotate-refresh-token.ts";

interface Dependencies {
  readonly db: Database;
  readonly clock: Clock;
  /** Seconds; the longest grace window of any client. */
  readonly longestGrace: number;
}

/**
 * Milliseconds that it is remembered beyond its expiry what was revoked or redeemed. A clock that was ahead for
 * a while, here or on another machine, must not make a revoked token active again.
 */
const marginMs = 24 * 60 * 60 * 1000;

/** One round. */
export async function cleanUp({ db, clock, longestGrace }: Dependencies): Promise<void> {
  const now = new Date(clock.now());
  const at = now.toISOString();
  const longAgo = new Date(now.getTime() - marginMs).toISOString();
  // An authorization is kept until neither of its tokens can be presented with any effect. What somebody is
  // working on is left for the next round: waiting for each other, the two could end in a deadlock.
  await db.execute(sql`
    delete from auth.authorizations where id in (
      select id from auth.authorizations
      where expires_at < ${at}::timestamptz and access_expires_at < ${at}::timestamptz limit 10000
      for update skip locked)`);
  await db.execute(sql`
    delete from auth.revoked_access_tokens where jti in (
      select jti from auth.revoked_access_tokens where expires_at < ${longAgo}::timestamptz limit 10000
      for update skip locked)`);
  await db.execute(sql`
    delete from auth.redeemed_otp_proofs where proof_hash in (
      select proof_hash from auth.redeemed_otp_proofs where expires_at < ${longAgo}::timestamptz limit 10000
      for update skip locked)`);
  await removeExpiredAttempts(db, now);
  await forgetSuccessors(db, longestGrace, clock.now());
}

/** Rounds at an interval, one at a time, until stopped. A round that fails is logged and tried again. */
export function startJanitor(dependencies: Dependencies & { logger: Logger; intervalSeconds: number }) {
  const { logger, intervalSeconds } = dependencies;
  let round: Promise<void> = Promise.resolve();
  let running = false;
  const timer = setInterval(() => {
    if (running) return;
    running = true;
    round = cleanUp(dependencies)
      .catch((err) => logger.warn({ err }, "the janitor could not finish its round; it tries again"))
      .finally(() => {
        running = false;
      });
  }, intervalSeconds * 1000);
  timer.unref();
  return {
    async stop(): Promise<void> {
      clearInterval(timer);
      await round;
    },
  };
}
