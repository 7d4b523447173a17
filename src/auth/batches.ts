import { type SQL, sql } from "drizzle-orm";
import type { Database } from "../platform/database/database.ts";
import { rowCount } from "../platform/database/sql/statements.ts";

/** Rows that one statement marks or removes: few enough that nobody notices it. */
export const batchSize = 1_000;

/** In the text and no parameter: of a parameter, PostgreSQL's plans assume a tenth of the table. */
export const limit: SQL = sql.raw(`limit ${batchSize}`);

/**
 * Repeats a statement that deals with one batch of rows and returns them, until a batch is not full: then nothing is
 * left. Or until `stopping` is aborted.
 * @param done is told of each batch how many rows it had
 * @param size rows of a full batch: the statement's own limit, where it has another one
 * @returns whether nothing is left
 */
export async function inBatches(
  db: Database,
  statement: SQL,
  stopping: AbortSignal | undefined,
  done?: (rows: number) => void,
  size = batchSize,
): Promise<boolean> {
  let rows = size;
  while (rows === size && !stopping?.aborted) {
    rows = await rowCount(db, statement);
    done?.(rows);
  }
  return rows < size;
}
