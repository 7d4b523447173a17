/**
 * Removes authorizations of which the last token has expired on a day that is over: many are looked up at once, and
 * removed a few at a time, as each look-up goes past what was removed while somebody holds a snapshot.
 */
import { type SQL, sql } from "drizzle-orm";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/readers.ts";
import { isAmong, rowCount, rows, selection } from "../../platform/database/sql/statements.ts";
import { batchSize } from "../batches.ts";
import { surelyNow } from "../running-time.ts";
import { authorizations } from "../schema.ts";
import { forgetReplaced } from "./end-authorizations.ts";

/** Authorizations that are looked up at once. */
const lookedUp = 50_000;

const { id, expiryDay } = names(authorizations);

/** That has surely come: a clock that is set ahead removes nothing. */
const today = sql`(select (${surelyNow} at time zone 'UTC')::date)`;

const due = selection({ id });
/** In the order of the index. The limit is in the text: of a parameter, PostgreSQL assumes a tenth of the table. */
const lookUp = sql`
  select ${due} from ${authorizations} where ${expiryDay} < ${today} order by ${expiryDay} ${sql.raw(`limit ${lookedUp}`)}`;

/**
 * Rows that somebody has locked are left for the next round, because waiting for the lock could end in a deadlock. The
 * day is an expression, so that its index is not used: rows are found by their ids.
 */
const remove = (ids: readonly string[]): SQL => sql`
  with removed as (
    delete from ${authorizations} where ${isAmong(
      id,
      sql`
      select ${id} from ${authorizations}
      where ${id} = any(${arrayLiteral(ids)}::uuid[]) and ${expiryDay} + 0 < ${today} for update skip locked`,
    )}
    returning ${id}
  ), forgotten as (${forgetReplaced(sql`select ${id} from removed`)})
  select ${id} from removed`;

/** Look-ups in a row of which nothing could be removed, before it is left to the next round. */
const maxInVain = 2;

/**
 * Goes on until nothing is left that can be removed, or `stopping` is aborted.
 * @param done is told of each batch how many it has removed
 * @returns whether nothing is left
 */
export async function removeExpired(
  db: Database,
  stopping: AbortSignal | undefined,
  done: (rows: number) => void,
): Promise<boolean> {
  for (let inVain = 0; inVain < maxInVain && !stopping?.aborted; ) {
    const found = await rows(db, due, lookUp);
    if (found.length === 0) done(0);
    let removed = 0;
    for (const ids of inAnyOrder(found.map((row) => row.id))) {
      const count = await rowCount(db, remove(ids));
      removed += count;
      done(count);
      if (stopping?.aborted) return false;
    }
    if (removed === found.length && found.length < lookedUp) return true;
    inVain = removed > 0 ? 0 : inVain + 1;
  }
  return false;
}

/** In batches, beginning with any: other processes have looked up the same. */
function inAnyOrder(ids: readonly string[]): string[][] {
  const batches = Array.from({ length: Math.ceil(ids.length / batchSize) }, (_, index) =>
    ids.slice(index * batchSize, (index + 1) * batchSize),
  );
  const first = Math.floor(Math.random() * batches.length);
  return [...batches.slice(first), ...batches.slice(0, first)];
}
