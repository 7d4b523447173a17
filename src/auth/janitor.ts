/**
 * Removes rows that are needed no more, a bounded number in each statement. The database's clock decides, so a
 * process whose clock is ahead removes nothing early. Any number of processes may run it at once, because every step
 * is idempotent.
 */
import { type SQL, sql } from "drizzle-orm";
import { every, type Loop } from "../platform/base/loop.ts";
import type { JanitorObserver } from "../platform/base/observers.ts";
import type { Database } from "../platform/database/database.ts";
import { names } from "../platform/database/names.ts";
import { removeKept } from "../platform/messaging/kept-events.ts";
import type { Logger } from "../platform/observability/logger.ts";
import { inBatches, limit } from "./batches.ts";
import { surelyNow } from "./running-time.ts";
import { attempts, authorizations, keptEvents, redeemedOtpProofs, revokedAccessTokens } from "./schema.ts";
import { authorizationIdLength } from "./tokens/access-token.ts";
import { removeExpired } from "./tokens/remove-expired.ts";
import {
  endDisabledClients,
  removeEndings,
  sweepAuthorizations,
  sweepEndingsAgain,
} from "./tokens/sweep-authorizations.ts";
import {
  removeReplacedTokens,
  removeRotationBatches,
  rotationBatchLimit,
} from "./tokens/sweep-replaced-tokens.ts";

/** Kinds of rows, for the metrics. */
export const janitorKinds = [
  "authorizations",
  "revoked_access_tokens",
  "redeemed_otp_proofs",
  "attempts",
  "replaced_tokens",
  "rotation_batches",
  "identity_endings",
  "kept_events",
  "ended_authorizations",
] as const;
type JanitorKind = (typeof janitorKinds)[number];

interface Dependencies {
  readonly db: Database;
  readonly logger: Logger;
  readonly intervalSeconds: number;
  /** Hours for which events are kept once they are delivered; 0 unless given. */
  readonly replayHours?: number;
  readonly observer?: JanitorObserver<JanitorKind> | undefined;
}

/** Hours that revoked tokens and redeemed proofs are kept after they have expired, at least. */
const marginHours = 24;

/** Seconds between sweeps of authorizations that have ended with others. */
const sweepSeconds = 1;

const authorization = names(authorizations);
const revoked = names(revokedAccessTokens);
const proof = names(redeemedOtpProofs);
const attempt = names(attempts);

// A moment that is selected is the same for all rows, so that an index can be asked for it; a call is made for each.
const now = sql`(select clock_timestamp())`;
const longAgo = sql`(select ${surelyNow} - ${marginHours}::int * interval '1 hour')`;
// Rows that another transaction has locked are left for the next round, because waiting for the lock could end in a
// deadlock.
const batch = sql`${limit} for update skip locked`;

/**
 * The day that comes after the authorization of a revoked token has expired; null if its row is gone, so that nothing
 * is left by which the token could be active, whatever the clock says by then. Looked up for each: in a join,
 * PostgreSQL might read all authorizations.
 */
const dayAfterAuthorization = sql`(select (${authorization.expiryDay} + 1)::timestamp at time zone 'UTC'
  from ${authorizations} where ${authorization.id} = left(${revoked.jti}, ${authorizationIdLength}::int)::uuid)`;

interface Step {
  /** Absent where it removes nothing, but prepares a removal. */
  readonly removes?: JanitorKind;
  /**
   * Does all there is to do, or stops where `stopping` is aborted; `done` is told how many rows it has dealt with.
   * @returns whether nothing is left to do
   */
  run(db: Database, stopping: AbortSignal | undefined, done: (rows: number) => void): Promise<boolean>;
}

/** Repeats a statement that deals with one batch of rows. */
const repeat =
  (statement: SQL): Step["run"] =>
  (db, stopping, done) =>
    inBatches(db, statement, stopping, done);

/** Table by table. */
const steps: readonly Step[] = [
  { removes: "authorizations", run: removeExpired },
  // Those whose authorization has its row are put off, so that the next rounds need not look at them again.
  {
    run: repeat(sql`
      update ${revokedAccessTokens} set ${revoked.expiresAt} = greatest(${dayAfterAuthorization}, clock_timestamp())
      where ${revoked.jti} in (
        select ${revoked.jti} from ${revokedAccessTokens}
        where ${revoked.expiresAt} < ${longAgo} and ${dayAfterAuthorization} is not null
        order by ${revoked.expiresAt} ${batch})
      returning 1 as one`),
  },
  {
    removes: "revoked_access_tokens",
    run: repeat(sql`
      delete from ${revokedAccessTokens} where ${revoked.jti} in (
      select ${revoked.jti} from ${revokedAccessTokens}
      where ${revoked.expiresAt} < ${longAgo} and ${dayAfterAuthorization} is null
      order by ${revoked.expiresAt} ${batch})
    returning 1 as one`),
  },
  {
    removes: "redeemed_otp_proofs",
    run: repeat(sql`
      delete from ${redeemedOtpProofs} where ${proof.proofHash} in (
      select ${proof.proofHash} from ${redeemedOtpProofs} where ${proof.expiresAt} < ${longAgo}
      order by ${proof.expiresAt} ${batch})
    returning 1 as one`),
  },
  {
    removes: "attempts",
    run: repeat(sql`
      delete from ${attempts} where ${attempt.key} in (
      select ${attempt.key} from ${attempts} where ${attempt.expire} <= ${now}
      order by ${attempt.expire} ${batch})
    returning 1 as one`),
  },
  { removes: "replaced_tokens", run: removeReplacedTokens },
  {
    removes: "rotation_batches",
    run: (db, stopping, done) => inBatches(db, removeRotationBatches, stopping, done, rotationBatchLimit),
  },
  { run: repeat(endDisabledClients) },
  { run: repeat(sweepEndingsAgain) },
  { removes: "identity_endings", run: repeat(removeEndings) },
];

const removeKeptEvents = (hours: number): Step => ({
  removes: "kept_events",
  run: repeat(removeKept(keptEvents, hours, batch)),
});

interface RoundOptions {
  /** 0 unless given. */
  readonly replayHours?: number;
  readonly stopping?: AbortSignal | undefined;
  readonly observer?: JanitorObserver<JanitorKind> | undefined;
}

/**
 * Runs one round: repeats every step until it has nothing left to do, or until `stopping` is aborted. A step that fails
 * keeps none of the others from its work.
 * @throws what the first step failed with that did, once all have run
 */
export async function cleanUp(
  db: Database,
  { replayHours = 0, stopping, observer }: RoundOptions = {},
): Promise<void> {
  const failures: unknown[] = [];
  for (const { removes, run } of [...steps, removeKeptEvents(replayHours)]) {
    let isDone = false;
    try {
      isDone = await run(db, stopping, (rows) => removes && observer?.cleaned(removes, rows));
    } catch (error) {
      failures.push(error);
      continue;
    }
    if (stopping?.aborted) return;
    if (removes && isDone) observer?.caughtUp(removes);
  }
  if (failures.length > 0) throw failures[0];
  observer?.roundEnded();
}

/** One round of the sweep of authorizations that have ended with others. */
async function sweep(db: Database, { stopping, observer }: RoundOptions): Promise<void> {
  await sweepAuthorizations(db, stopping, (rows) => observer?.cleaned("ended_authorizations", rows));
  if (!stopping?.aborted) observer?.caughtUp("ended_authorizations");
}

/** Runs rounds at an interval, and sweeps in between, until stopped. What failed is logged and tried again. */
export function startJanitor({ db, logger, intervalSeconds, replayHours = 0, observer }: Dependencies): Loop {
  const loops = [
    every(
      intervalSeconds * 1000,
      (stopping) => cleanUp(db, { replayHours, stopping, observer }),
      (err) => logger.warn({ err }, "The janitor could not finish its round; it tries again"),
    ),
    every(
      sweepSeconds * 1000,
      (stopping) => sweep(db, { stopping, observer }),
      (err) => logger.warn({ err }, "Ended authorizations could not be swept; it is tried again"),
    ),
  ];
  return {
    async stop() {
      await Promise.all(loops.map((loop) => loop.stop()));
    },
  };
}
