/**
 * Rotations of refresh tokens in the database. Those that are requested at the same time share a statement and a
 * commit: a batch, which a process stamps within a second once it has seen the commit succeed.
 */
import { type SQL, type SQLWrapper, sql } from "drizzle-orm";
import { isDatabaseUnavailable } from "../../platform/base/database-errors.ts";
import { untraced } from "../../platform/base/tracing.ts";
import { uuidv7 } from "../../platform/crypto/random.ts";
import { arrayLiteral, type Executor } from "../../platform/database/database.ts";
import { batched } from "../../platform/database/sql/batched-lookup.ts";
import { hexOfBytea } from "../../platform/database/sql/columns.ts";
import { names, text } from "../../platform/database/sql/readers.ts";
import { computed, prepared, rows, selection } from "../../platform/database/sql/statements.ts";
import type { Client } from "../clients/client-repository.ts";
import { AuthEvents, recordEvent } from "../events.ts";
import { runningNow } from "../running-time.ts";
import { authorizations, replacedTokens, rotationBatches } from "../schema.ts";
import { hasNotEndedById } from "./end-authorizations.ts";
import { hashPart, type RefreshToken } from "./refresh-token.ts";

/** The replacement of a refresh token, as the caller knows it. */
interface Replacement {
  readonly presented: RefreshToken;
  readonly next: RefreshToken;
  /** What a retry gets, encrypted under the presented token: the pair with the next one, of bound tokens that token. */
  readonly sealedPair: Buffer;
  /** Seconds from the commit's statement. */
  readonly lifetimes: Client["tokenSettings"];
}

/** A replacement, with the hash of the next token in hex, by which the statement's result names it. */
interface Rotation extends Replacement {
  readonly nextHash: string;
}

export interface Rotations {
  /**
   * Replaces the token and writes the event if, and only if, the presented token is still the current one and the
   * authorization is active, by the database's clock: of n concurrent calls, one succeeds.
   * @returns whether this call replaced the token
   */
  rotate(replacement: Replacement): Promise<boolean>;
  /** The same for tokens that are bound to a key. */
  rotateBound(replacement: Replacement): Promise<boolean>;
  /** Stamps what is left to be stamped. Never rejects. */
  stop(): Promise<void>;
}

/** Milliseconds after which a batch is stamped if no other batch takes its stamp along. */
const stampAfterMs = 500;

/** Rotations that share a statement. */
const maxRotations = 128;

/** @param unstamped is told why batches could not be stamped; they will be tried again within a second */
export function createRotations(db: Executor, unstamped: (error: unknown) => void): Rotations {
  /** Batches whose commit was seen to succeed and that are not stamped yet. */
  let seen: string[] = [];
  let timer: NodeJS.Timeout | undefined;

  /** @returns the hashes of the tokens that are current now */
  async function rotateAll(
    rotations: readonly Rotation[],
    { keeping, lockWait }: { keeping: Keeping; lockWait: "skips" | "waits" },
  ): Promise<Set<string>> {
    const statement = keeping[lockWait];
    const batchId = uuidv7(Date.now());
    const stamps = takeSeen();
    try {
      const requested = JSON.stringify(rotations.map(requestedRow));
      const rotated = await rows(
        db,
        replacing,
        statement({ requested, batchId, seen: arrayLiteral(stamps) }),
      );
      if (rotated.length > 0 && keeping.isStamped) seen.push(batchId);
      return new Set(rotated.map(({ hash }) => hash));
    } catch (error) {
      seen.push(...stamps);
      throw error;
    } finally {
      stampLater();
    }
  }

  function takeSeen(): string[] {
    const stamps = seen;
    seen = [];
    clearTimeout(timer);
    timer = undefined;
    return stamps;
  }

  function stampLater(): void {
    if (seen.length > 0) timer ??= untraced(() => setTimeout(() => void stamp(), stampAfterMs).unref());
  }

  async function stamp(): Promise<void> {
    const stamps = takeSeen();
    if (stamps.length === 0) return;
    try {
      await db.execute(stampBatches({ seen: arrayLiteral(stamps) }));
    } catch (error) {
      seen.push(...stamps);
      stampLater();
      unstamped(error);
    }
  }

  /** What the shared statement has not rotated, as it skips locked rows, is tried again in a statement of its own. */
  function rotating(keeping: Keeping) {
    const rotateBatched = batched({
      load: async (rotations: readonly Rotation[]) => {
        const current = await rotateAll(rotations, { keeping, lockWait: "skips" }).catch((error: unknown) => {
          // The statement may have been committed, so a second try could not tell either.
          if (isDatabaseUnavailable(error)) throw error;
          return new Set<string>();
        });
        return new Map(rotations.filter((one) => current.has(one.nextHash)).map((one) => [one, true]));
      },
      maxKeys: maxRotations,
    });
    return async (replacement: Replacement): Promise<boolean> => {
      const nextHash = hashPart(replacement.next.rotating).toString("hex");
      const rotation = { ...replacement, nextHash };
      const isRotated = await rotateBatched(rotation);
      return isRotated ?? (await rotateAll([rotation], { keeping, lockWait: "waits" })).has(nextHash);
    };
  }

  return {
    rotate: rotating(keptApart),
    rotateBound: rotating(keptInRow),
    stop: stamp,
  };
}

const authorization = names(authorizations, "a");
const { id, identityId, clientId, refreshHash, ...set } = names(authorizations);
const kept = names(replacedTokens);
const batch = names(rotationBatches);

const stampStatement = (seen: SQL) => sql`
  insert into ${rotationBatches} (${batch.id}, ${batch.seenAt})
  select value::uuid, ${runningNow} from unnest(${seen}::text[]) as stamped (value)
  on conflict do nothing`;

const stampBatches = prepared(["seen"], ({ seen }) => stampStatement(sql`${seen}`));

const replacing = selection({ hash: computed(text, sql`encode(${refreshHash}, 'hex')`) });

/** What a retry needs, in `replaced_tokens`: its row goes once the grace window has closed. */
const rememberApart = (batchId: SQLWrapper) => sql`, remembered as (
      insert into ${replacedTokens} (${kept.authorizationId}, ${kept.replacedHash}, ${kept.sealedPair}, ${kept.batchId})
      select ${id}, ${kept.replacedHash}, ${kept.sealedPair}, ${batchId}::uuid from rotated
      on conflict (${kept.authorizationId}) do update set ${kept.replacedHash} = excluded.${kept.replacedHash},
        ${kept.sealedPair} = excluded.${kept.sealedPair}, ${kept.batchId} = excluded.${kept.batchId}
    )`;

/** The same in the row of the authorization `a`, where it stays until the next rotation. */
const rememberInRow = sql`, ${set.replacedHash} = requested.${kept.replacedHash},
        ${set.sealedSuccessor} = requested.${kept.sealedPair}, ${set.replacedAt} = ${runningNow},
        ${set.lateRotations} = case when ${authorization.wasRepeatedLate} then ${authorization.lateRotations} else 0 end,
        ${set.wasRepeatedLate} = false`;

/**
 * @param lockWait how to treat rows that another transaction has locked: `skip locked`, or wait if empty
 * @param isBound whether what a retry needs stays in the row of the authorization
 */
function rotateStatement(lockWait: SQL, isBound: boolean) {
  const expiry = (seconds: SQL) => sql`clock_timestamp() + requested.${seconds} * interval '1 second'`;
  const refreshExpiry = expiry(sql`refresh_seconds`);
  const accessExpiry = expiry(sql`access_seconds`);
  return prepared(
    ["requested", "batchId", "seen"],
    ({ requested, batchId, seen }) => sql`
    with requested as (
      select * from json_to_recordset(${requested}::text::json) as row (
        ${id} uuid, ${kept.replacedHash} bytea, ${refreshHash} bytea, ${kept.sealedPair} bytea,
        refresh_seconds int, access_seconds int)
    ), free as (
      select free_id from requested cross join lateral (
        select ${authorization.id} as free_id from ${authorizations} a
        where ${authorization.id} = requested.${id} for no key update ${lockWait}) as locked
    ), rotated as (
      update ${authorizations} a
      set ${refreshHash} = requested.${refreshHash}, ${set.expiresAt} = ${refreshExpiry},
        ${set.refreshedAt} = clock_timestamp(),
        ${set.expiryDay} = (greatest(${refreshExpiry}, ${accessExpiry}) at time zone 'UTC')::date
        ${isBound ? rememberInRow : sql``}
      from requested
      where ${authorization.id} = requested.${id} and ${authorization.id} = any(array(select free_id from free))
        and ${authorization.refreshHash} = requested.${kept.replacedHash}
        and ${authorization.expiresAt} > clock_timestamp() and ${hasNotEndedById}
      returning ${authorization.id}, ${authorization.identityId}, ${authorization.clientId},
        ${authorization.refreshHash}, requested.${kept.replacedHash}, requested.${kept.sealedPair}
    )${isBound ? sql`` : rememberApart(batchId)}, recorded as (
      ${recordEvent(
        AuthEvents.authorizationRefreshed,
        { identityId, authorizationId: id, clientId },
        { at: sql`clock_timestamp()`, from: sql`from rotated` },
      )}
    ), stamped as (${stampStatement(sql`${seen}`)})
    select ${replacing} from rotated`,
  );
}

const keeping = (isBound: boolean) => ({
  skips: rotateStatement(sql`skip locked`, isBound),
  waits: rotateStatement(sql``, isBound),
  /** Whether the batch is stamped, as the grace window begins then. */
  isStamped: !isBound,
});
type Keeping = ReturnType<typeof keeping>;

const keptApart = keeping(false);
const keptInRow = keeping(true);

/** The rotation as JSON, with the column names of the statement. */
function requestedRow(rotation: Rotation) {
  const { presented, nextHash, sealedPair, lifetimes } = rotation;
  return {
    [authorizations.id.name]: presented.authorizationId,
    [replacedTokens.replacedHash.name]: hexOfBytea(hashPart(presented.rotating)),
    [authorizations.refreshHash.name]: `\\x${nextHash}`,
    [replacedTokens.sealedPair.name]: hexOfBytea(sealedPair),
    refresh_seconds: lifetimes.refreshTokenSeconds,
    access_seconds: lifetimes.accessTokenSeconds,
  };
}
