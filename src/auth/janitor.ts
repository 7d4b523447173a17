/**
 * Removes rows that are needed no more, a bounded number in each statement, by the database's clock. Any number of
 * processes may run the janitor at the same time.
 */
import { type SQL, sql } from "drizzle-orm";
import type { PgTable } from "drizzle-orm/pg-core";
import { type JanitorStep, type RoundOptions, runRound, startRounds } from "../platform/base/janitor.ts";
import { every, type Loop } from "../platform/base/loop.ts";
import type { JanitorObserver } from "../platform/base/observers.ts";
import type { Database } from "../platform/database/database.ts";
import { names } from "../platform/database/sql/readers.ts";
import { isAmong } from "../platform/database/sql/statements.ts";
import type { Logger } from "../platform/observability/logger.ts";
import { inBatches, limit } from "./batches.ts";
import { challengeSessions, openBreakers, sentCodes } from "./codes-schema.ts";
import { surelyNow } from "./running-time.ts";
import { attempts, authorizations, redeemedOtpProofs, revokedAccessTokens } from "./schema.ts";
import { authorizationIdLength } from "./tokens/access-token.ts";
import { removeExpired } from "./tokens/remove-expired.ts";
import { removeReplacedTokens } from "./tokens/remove-replaced-tokens.ts";
import {
  endDisabledClients,
  removeEndings,
  sweepAuthorizations,
  sweepEndingsAgain,
  sweepOrganizationsAgain,
} from "./tokens/sweep-authorizations.ts";

/** Kinds of rows, for the metrics. */
export const janitorKinds = [
  "authorizations",
  "revoked_access_tokens",
  "redeemed_otp_proofs",
  "attempts",
  "challenge_sessions",
  "sent_codes",
  "open_breakers",
  "replaced_tokens",
  "rotation_batches",
  "identity_endings",
  "ended_authorizations",
] as const;
type JanitorKind = (typeof janitorKinds)[number];

interface Dependencies {
  readonly db: Database;
  readonly logger: Logger;
  readonly intervalSeconds: number;
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
const session = names(challengeSessions);
const sent = names(sentCodes);
const breaker = names(openBreakers);

// Selected, so that it is one moment for all rows, and an index can be used.
const now = sql`(select clock_timestamp())`;
// The authorization code of a session may be exchanged, and that repeated, for two minutes after it. A breaker looks
// at the codes of an hour.
const anHourAgo = sql`(select clock_timestamp() - interval '1 hour')`;
const longAgo = sql`(select ${surelyNow} - ${marginHours}::int * interval '1 hour')`;
// Rows that another transaction has locked are left for the next round: to wait for them could end in a deadlock.
const batch = sql`${limit} for update skip locked`;

/**
 * The day that comes after the authorization of a revoked token has expired; null if its row is gone, so that nothing
 * is left by which the token could be active, whatever the clock says by then.
 */
const dayAfterAuthorization = sql`(select (${authorization.expiryDay} + 1)::timestamp at time zone 'UTC'
  from ${authorizations} where ${authorization.id} = left(${revoked.jti}, ${authorizationIdLength}::int)::uuid)`;

/** The revoked tokens that would have expired long ago. @param which a further condition on them */
const revokedLongAgo = (which: SQL) => sql`
  select ${revoked.jti} from ${revokedAccessTokens} where ${revoked.expiresAt} < ${longAgo} and ${which}
  order by ${revoked.expiresAt} ${batch}`;

/** Deletes a batch of the rows whose time is over, by their keys. */
const deleteUpTo = (table: PgTable, key: SQL, time: SQL, end: SQL) => {
  const chosen = sql`select ${key} from ${table} where ${time} <= ${end} order by ${time} ${batch}`;
  return sql`delete from ${table} where ${isAmong(key, chosen)} returning 1 as one`;
};

type Step = JanitorStep<JanitorKind>;

/** Repeats a statement that removes one batch of rows. */
const remove = (db: Database, kind: JanitorKind, statement: SQL): Step => ({
  kinds: [kind],
  run: ({ stopping, cleaned }) => inBatches(db, statement, { stopping, done: (rows) => cleaned(kind, rows) }),
});

/** Repeats a statement that prepares the removal of one batch of rows. */
const prepare = (db: Database, statement: SQL): Step => ({
  kinds: [],
  run: ({ stopping }) => inBatches(db, statement, { stopping }),
});

/** The steps of a round, table by table. */
const stepsOf = (db: Database): readonly Step[] => [
  {
    kinds: ["authorizations"],
    run: ({ stopping, cleaned }) => removeExpired(db, stopping, (rows) => cleaned("authorizations", rows)),
  },
  // A revoked token whose authorization has its row is put off, so that the next rounds need not look at it again.
  prepare(
    db,
    sql`
      update ${revokedAccessTokens} set ${revoked.expiresAt} = greatest(${dayAfterAuthorization}, clock_timestamp())
      where ${isAmong(revoked.jti, revokedLongAgo(sql`${dayAfterAuthorization} is not null`))}
      returning 1 as one`,
  ),
  remove(
    db,
    "revoked_access_tokens",
    sql`
      delete from ${revokedAccessTokens}
      where ${isAmong(revoked.jti, revokedLongAgo(sql`${dayAfterAuthorization} is null`))}
      returning 1 as one`,
  ),
  remove(db, "redeemed_otp_proofs", deleteUpTo(redeemedOtpProofs, proof.proofHash, proof.expiresAt, longAgo)),
  remove(db, "attempts", deleteUpTo(attempts, attempt.key, attempt.expire, now)),
  remove(
    db,
    "challenge_sessions",
    deleteUpTo(challengeSessions, session.sessionHash, session.expiresAt, anHourAgo),
  ),
  remove(db, "sent_codes", deleteUpTo(sentCodes, sent.id, sent.sentAt, anHourAgo)),
  // Of prefixes that have had no code for an hour.
  remove(
    db,
    "open_breakers",
    sql`
      delete from ${openBreakers}
      where ${breaker.openedAt} < ${anHourAgo}
        and not exists (select from ${sentCodes} where ${sent.prefix} = ${openBreakers.prefix})
      returning 1 as one`,
  ),
  {
    kinds: ["replaced_tokens", "rotation_batches"],
    run: (run) => removeReplacedTokens(db, run),
  },
  prepare(db, endDisabledClients),
  prepare(db, sweepEndingsAgain),
  prepare(db, sweepOrganizationsAgain),
  remove(db, "identity_endings", removeEndings),
];

/** Runs one round, as {@link runRound}. */
export async function cleanUp(db: Database, options: RoundOptions<JanitorKind> = {}): Promise<void> {
  await runRound(stepsOf(db), options);
}

/** Marks the authorizations that have ended with their identity or client, until none is left. */
async function sweep(db: Database, { stopping, observer }: RoundOptions<JanitorKind>): Promise<void> {
  await sweepAuthorizations(db, stopping, (rows) => observer?.cleaned("ended_authorizations", rows));
  if (!stopping?.aborted) observer?.caughtUp("ended_authorizations");
}

/** Runs rounds at an interval, and sweeps in between, until stopped. What fails is logged and tried again. */
export function startJanitor({ db, logger, intervalSeconds, observer }: Dependencies): Loop {
  const loops = [
    startRounds({
      intervalSeconds,
      logger,
      round: (stopping) => cleanUp(db, { stopping, observer }),
    }),
    every(
      sweepSeconds * 1000,
      (stopping) => sweep(db, { stopping, observer }),
      (err) => logger.warn({ err }, "The janitor could not mark ended authorizations; it will try again"),
    ),
  ];
  return {
    async stop() {
      await Promise.all(loops.map((loop) => loop.stop()));
    },
  };
}
