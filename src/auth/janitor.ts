/**
 * Removes what has expired, a bounded number of rows in one statement. Any number of processes may run it at once:
 * every step is right however often it is done.
 */
import { type SQL, sql } from "drizzle-orm";
import type { Clock } from "../platform/base/clock.ts";
import { every, type Loop } from "../platform/base/loop.ts";
import type { Database } from "../platform/database/database.ts";
import { names } from "../platform/database/names.ts";
import { rowCount } from "../platform/database/statements.ts";
import type { Logger } from "../platform/observability/logger.ts";
import { attempts, authorizations, redeemedOtpProofs, revokedAccessTokens } from "./schema.ts";

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

/** Rows that one statement removes: few enough to be done well within the time that a statement has. */
const batchSize = 10_000;

const authorization = names(authorizations);
const revoked = names(revokedAccessTokens);
const proof = names(redeemedOtpProofs);
const attempt = names(attempts);

/** What to remove, table by table. A step that does less than a batch has nothing left to do. */
function stepsOf({ clock, longestGrace }: Dependencies): SQL[] {
  const now = clock.now();
  const at = new Date(now).toISOString();
  const longAgo = new Date(now - marginMs).toISOString();
  const windowClosed = now - longestGrace * 1000;
  // What somebody is working on is left for the next round: waiting for each other, the two could end in a
  // deadlock.
  const batch = sql`limit ${batchSize} for update skip locked`;
  return [
    // An authorization is kept until neither of its tokens can be presented with any effect.
    sql`delete from ${authorizations} where ${authorization.id} in (
      select ${authorization.id} from ${authorizations}
      where ${authorization.expiresAt} < ${at}::timestamptz and ${authorization.accessExpiresAt} < ${at}::timestamptz
      ${batch}) returning 1 as one`,
    sql`delete from ${revokedAccessTokens} where ${revoked.jti} in (
      select ${revoked.jti} from ${revokedAccessTokens}
      where ${revoked.expiresAt} < ${longAgo}::timestamptz ${batch}) returning 1 as one`,
    sql`delete from ${redeemedOtpProofs} where ${proof.proofHash} in (
      select ${proof.proofHash} from ${redeemedOtpProofs}
      where ${proof.expiresAt} < ${longAgo}::timestamptz ${batch}) returning 1 as one`,
    sql`delete from ${attempts} where ${attempt.key} in (
      select ${attempt.key} from ${attempts} where ${attempt.expire} <= ${at}::timestamptz ${batch})
      returning 1 as one`,
    // Successors that were kept for a retry, once no client's window is open any more.
    sql`update ${authorizations} set ${authorization.superseded} = '[]' where ${authorization.id} in (
      select ${authorization.id} from ${authorizations}
      where ${authorization.superseded} <> '[]'
        and (${authorization.superseded} -> 0 ->> 'at')::bigint < ${windowClosed} ${batch})
      returning 1 as one`,
  ];
}

/** One round: every step, until nothing is left of it or it is time to stop. */
export async function cleanUp(dependencies: Dependencies, stopping?: AbortSignal): Promise<void> {
  for (const step of stepsOf(dependencies)) {
    for (let done = batchSize; done === batchSize && !stopping?.aborted; )
      done = await rowCount(dependencies.db, step);
  }
}

/** Rounds at an interval until stopped. A round that fails is logged and tried again. */
export function startJanitor(dependencies: Dependencies & { logger: Logger; intervalSeconds: number }): Loop {
  const { logger, intervalSeconds } = dependencies;
  return every(
    intervalSeconds * 1000,
    (stopping) => cleanUp(dependencies, stopping),
    (err) => logger.warn({ err }, "the janitor could not finish its round; it tries again"),
  );
}
