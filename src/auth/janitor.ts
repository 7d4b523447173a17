/**
 * Removes expired rows, a bounded number in each statement. Any number of processes may run it at once, because
 * every step is idempotent.
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
 * Milliseconds that revoked tokens and redeemed proofs are kept after they have expired. A clock that was ahead
 * for a while, here or on another machine, must not make a revoked token active again.
 */
const marginMs = 24 * 60 * 60 * 1000;

/** Rows that one statement removes: few enough to finish well within the statement timeout. */
const batchSize = 10_000;

const authorization = names(authorizations);
const revoked = names(revokedAccessTokens);
const proof = names(redeemedOtpProofs);
const attempt = names(attempts);

/** The statements, table by table. A statement that affects less than a full batch has nothing left to do. */
function stepsOf({ clock, longestGrace }: Dependencies): SQL[] {
  const now = clock.now();
  const at = new Date(now).toISOString();
  const longAgo = new Date(now - marginMs).toISOString();
  const windowClosed = now - longestGrace * 1000;
  // Rows that another transaction has locked are left for the next round, because waiting for the lock could
  // end in a deadlock.
  const batch = sql`limit ${batchSize} for update skip locked`;
  return [
    // An authorization is kept until its refresh token and its newest access token have both expired.
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
      select ${attempt.key} from ${attempts} where ${attempt.expire} <= now() ${batch})
      returning 1 as one`,
    // Token pairs that were kept for a retry, once even the longest grace window has closed.
    sql`update ${authorizations} set ${authorization.superseded} = '[]' where ${authorization.id} in (
      select ${authorization.id} from ${authorizations}
      where ${authorization.superseded} <> '[]'
        and (${authorization.superseded} -> 0 ->> 'at')::bigint < ${windowClosed} ${batch})
      returning 1 as one`,
  ];
}

/** Runs one round: repeats every step until it has nothing left to do, or until `stopping` is aborted. */
export async function cleanUp(dependencies: Dependencies, stopping?: AbortSignal): Promise<void> {
  for (const step of stepsOf(dependencies)) {
    for (let done = batchSize; done === batchSize && !stopping?.aborted; )
      done = await rowCount(dependencies.db, step);
  }
}

/** Runs rounds at an interval until stopped. A failed round is logged; the next one tries again. */
export function startJanitor(dependencies: Dependencies & { logger: Logger; intervalSeconds: number }): Loop {
  const { logger, intervalSeconds } = dependencies;
  return every(
    intervalSeconds * 1000,
    (stopping) => cleanUp(dependencies, stopping),
    (err) => logger.warn({ err }, "The janitor could not finish its round; it tries again"),
  );
}
