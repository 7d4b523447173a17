/**
 * Removes the replaced refresh tokens that no retry may present any more, and then the batches that no token needs.
 */
import { type SQL, sql } from "drizzle-orm";
import type { Executor } from "../../platform/database/database.ts";
import { integer, names, nullable, text } from "../../platform/database/sql/readers.ts";
import {
  computed,
  isAmong,
  isoTime,
  jsonMember,
  onlyRow,
  selection,
} from "../../platform/database/sql/statements.ts";
import { batchSize, inBatches, limit } from "../batches.ts";
import { runningNow } from "../running-time.ts";
import { clients, replacedTokens, rotationBatches } from "../schema.ts";

const replaced = names(replacedTokens);
const batch = names(rotationBatches);
const { tokenSettings } = names(clients);

/** Batches that one statement removes: their rows are small. */
const batchLimit = 20_000;

/** Minutes for which a batch is kept after its tokens: it may become visible some seconds after its time. */
const keptMinutes = 10;

interface Options {
  /** Aborted to end after the current statement. */
  readonly stopping?: AbortSignal | undefined;
  /** Called for each statement with how many rows it has removed. */
  readonly cleaned?: (kind: "replaced_tokens" | "rotation_batches", rows: number) => void;
}

/**
 * Goes through the replaced tokens, and then removes batches. What somebody has locked is left for the next time.
 * @returns whether it was finished, and not stopped before
 */
export async function removeReplacedTokens(db: Executor, options: Options = {}): Promise<boolean> {
  const unneeded = await removeTokens(db, options);
  return unneeded !== undefined && (await removeBatches(db, unneeded, options));
}

const closed = selection({
  /** In running time. Every grace window that began before this moment has closed. */
  moment: computed(
    text,
    isoTime(sql`(select ${runningNow} - interval '1 second'
      * coalesce(max(${jsonMember(tokenSettings, "refreshGraceSeconds")}::int), 0) from ${clients})`),
  ),
});

const step = selection({
  last: computed(
    nullable(text),
    sql`(select ${replaced.authorizationId} from looked order by 1 desc limit 1)`,
  ),
  looked: computed(integer, sql`(select count(*) from looked)::int`),
  removed: computed(integer, sql`(select count(*) from removed)::int`),
  /** When the first batch was seen of which a token could not be removed. */
  leftSince: computed(
    nullable(text),
    isoTime(sql`(
      select min(${batch.seenAt}) from due
      where ${replaced.authorizationId} not in (select ${replaced.authorizationId} from removed))`),
  ),
});

/** When the batch of a row of the replaced tokens was seen. */
const seenAt = sql`(select ${batch.seenAt} from ${rotationBatches} where ${batch.id} = ${replaced.batchId})`;

/**
 * Goes through all replaced tokens once, by their keys and a bounded number at a time.
 * @returns the moment before which no batch was seen that has a token; undefined if `stopping` was aborted
 */
async function removeTokens(db: Executor, { stopping, cleaned }: Options): Promise<string | undefined> {
  const { moment } = await onlyRow(db, closed, sql`select ${closed}`);
  let unneeded = moment;
  let after = "00000000-0000-0000-0000-000000000000";
  for (let looked = batchSize; looked === batchSize; ) {
    if (stopping?.aborted) return undefined;
    const removable = sql`
      select ${replaced.authorizationId} from ${replacedTokens}
      where ${isAmong(replaced.authorizationId, sql`select ${replaced.authorizationId} from due`)}
        and ${seenAt} < ${moment}::timestamptz
      for update skip locked`;
    const statement = sql`
        with looked as materialized (
          select ${replaced.authorizationId}, ${replaced.batchId} from ${replacedTokens}
          where ${replaced.authorizationId} > ${after}::uuid order by ${replaced.authorizationId} ${limit}
        ), due as materialized (
          select ${replaced.authorizationId}, ${batch.seenAt}
          from (select ${replaced.authorizationId}, ${seenAt} from looked) as seen
          where ${batch.seenAt} < ${moment}::timestamptz
        ), removed as (
          delete from ${replacedTokens} where ${isAmong(replaced.authorizationId, removable)}
          returning ${replaced.authorizationId}
        )
        select ${step}`;
    const { last, removed, leftSince, ...done } = await onlyRow(db, step, statement);
    looked = done.looked;
    after = last ?? after;
    // Both are RFC 3339 in UTC, so that the earlier one is the lesser text.
    if (leftSince !== null && leftSince < unneeded) unneeded = leftSince;
    cleaned?.("replaced_tokens", removed);
  }
  return unneeded;
}

/**
 * Removes the batches that were seen long enough before a moment. It does not look at the tokens: there are millions.
 */
function removeBatches(db: Executor, unneeded: string, { stopping, cleaned }: Options): Promise<boolean> {
  const removable = sql`
    select ${batch.id} from ${rotationBatches}
    where ${batch.seenAt} < ${unneeded}::timestamptz - ${keptMinutes}::int * interval '1 minute'
    ${sql.raw(`limit ${batchLimit}`)} for update skip locked`;
  const statement: SQL = sql`
    delete from ${rotationBatches} where ${isAmong(batch.id, removable)} returning 1 as one`;
  return inBatches(db, statement, {
    stopping,
    size: batchLimit,
    done: (count) => cleaned?.("rotation_batches", count),
  });
}
