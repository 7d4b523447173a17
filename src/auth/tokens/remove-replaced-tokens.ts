/**
 * Removes the replaced refresh tokens that no retry may present any more. The token goes before its batch: a token
 * whose batch is not there counts as one that nobody has seen replaced.
 */
import { type SQL, sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { integer, nullable, text } from "../../platform/database/sql/readers.ts";
import { computed, isAmong, jsonMember, rows, selection } from "../../platform/database/sql/statements.ts";
import { batchSize, limit } from "../batches.ts";
import { runningNow } from "../running-time.ts";
import { clients, replacedTokens, rotationBatches } from "../schema.ts";

const replaced = names(replacedTokens);
const batch = names(rotationBatches);
const { tokenSettings } = names(clients);

/** Before this moment, in running time, every grace window has closed. */
const windowsClosed = sql`(select ${runningNow} - interval '1 second'
  * coalesce(max(${jsonMember(tokenSettings, "refreshGraceSeconds")}::int), 0) from ${clients})`;

/**
 * Batches that one statement removes: their rows are small, and to know that no token needs them, it reads all tokens.
 */
export const rotationBatchLimit = 20_000;

/**
 * Removes batches that no token needs any more. `except` goes through both tables once; with `not exists`, PostgreSQL
 * goes through all tokens for each batch where its statistics say that there are none.
 */
export const removeRotationBatches: SQL = (() => {
  const unneeded = sql`
    select ${batch.id} from (
      select ${batch.id} from ${rotationBatches} where ${batch.seenAt} < ${windowsClosed}
      except select ${replaced.batchId} from ${replacedTokens}
    ) as unneeded ${sql.raw(`limit ${rotationBatchLimit}`)}`;
  const removable = sql`
    select ${batch.id} from ${rotationBatches} where ${isAmong(batch.id, unneeded)} for update skip locked`;
  return sql`delete from ${rotationBatches} where ${isAmong(batch.id, removable)} returning 1 as one`;
})();

const step = selection({
  last: computed(
    nullable(text),
    sql`(select ${replaced.authorizationId} from looked order by 1 desc limit 1)`,
  ),
  looked: computed(integer, sql`(select count(*) from looked)::int`),
  removed: computed(integer, sql`(select count(*) from removed)::int`),
});

/**
 * Goes through all replaced tokens once, by their keys and a bounded number at a time, until the last one or until
 * `stopping` is aborted. Each is looked at once, so that many take as long as so many times few.
 * @param removed is told of each step how many it has removed
 * @returns whether it has gone through all
 */
export async function removeReplacedTokens(
  db: Database,
  stopping?: AbortSignal,
  removed?: (rows: number) => void,
): Promise<boolean> {
  let after = "00000000-0000-0000-0000-000000000000";
  let looked = batchSize;
  while (looked === batchSize && !stopping?.aborted) {
    const removable = sql`
      select ${replaced.authorizationId} from ${replacedTokens}
      where ${isAmong(replaced.authorizationId, sql`select ${replaced.authorizationId} from looked`)}
        and (select ${batch.seenAt} from ${rotationBatches} where ${batch.id} = ${replaced.batchId}) < ${windowsClosed}
      for update skip locked`;
    const [done] = await rows(
      db,
      step,
      sql`
        with looked as materialized (
          select ${replaced.authorizationId} from ${replacedTokens}
          where ${replaced.authorizationId} > ${after}::uuid order by ${replaced.authorizationId} ${limit}
        ), removed as (
          delete from ${replacedTokens} where ${isAmong(replaced.authorizationId, removable)} returning 1
        )
        select ${step}`,
    );
    looked = done?.looked ?? 0;
    after = done?.last ?? after;
    removed?.(done?.removed ?? 0);
  }
  return looked < batchSize;
}
