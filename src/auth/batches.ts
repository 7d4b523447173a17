import { type SQL, sql } from "drizzle-orm";
import { pause } from "../platform/base/loop.ts";
import type { Executor } from "../platform/database/database.ts";
import { rowCount } from "../platform/database/sql/statements.ts";

/** Rows that one statement marks or removes: few enough that nobody notices it. */
export const batchSize = 1_000;

/** In the text: of a parameter, PostgreSQL assumes a tenth of the table. */
export const limit: SQL = sql.raw(`limit ${batchSize}`);

interface BatchOptions {
  /** Aborted to end after the current batch. */
  readonly stopping?: AbortSignal | undefined;
  /** Called for each batch with how many rows it had. */
  readonly done?: (rows: number) => void;
  /** Rows of a full batch: the statement's own limit, where it has another one. */
  readonly size?: number;
  /** Whether to rest after a full batch for as long as it took, so that requests have half of the time. */
  readonly rests?: boolean;
}

/**
 * Repeats a statement that deals with one batch of rows and returns them, until a batch is not full or `stopping` is
 * aborted. @returns whether nothing is left
 */
export async function inBatches(
  db: Executor,
  statement: SQL,
  { stopping, done, size = batchSize, rests = false }: BatchOptions = {},
): Promise<boolean> {
  let rows = size;
  while (rows === size && !stopping?.aborted) {
    const began = performance.now();
    rows = await rowCount(db, statement);
    done?.(rows);
    if (rests && rows === size) await pause(performance.now() - began, stopping);
  }
  return rows < size;
}
