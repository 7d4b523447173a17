import type { SQL } from "drizzle-orm";
import type { Database } from "../../src/platform/database/database.ts";
import { rawRows } from "../../src/platform/database/sql/statements.ts";

/** Rows of a statement; a test compares their values itself. */
export async function rows<T extends Record<string, unknown>>(db: Database, statement: SQL): Promise<T[]>;
export async function rows(db: Database, statement: SQL): Promise<Record<string, unknown>[]> {
  return rawRows(db, statement);
}
