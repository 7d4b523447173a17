import { type SQL, sql } from "drizzle-orm";
import postgres from "postgres";
import type { Database } from "../../src/platform/database/database.ts";
import { requiredPostgresUrl } from "./postgresql/server.ts";
import { rows } from "./rows.ts";

/**
 * Fills a table whose statistics say that it is empty: they are made after its rows were deleted, and before VACUUM
 * removes their pages. PostgreSQL then expects one row, however many are inserted, until the next ANALYZE. A table is
 * like that for a while if its rows come and go in bursts. From now on PostgreSQL analyzes this one only when asked to.
 * @param table with its schema
 * @param fill inserts the rows; it is executed twice
 */
export async function takenForEmpty(db: Database, table: string, fill: SQL): Promise<void> {
  const [database] = await rows<{ name: string }>(db, sql`select current_database() as name`);
  const url = requiredPostgresUrl();
  url.pathname = `/${database?.name}`;
  const owner = postgres(url.href, { max: 1, onnotice: () => undefined });
  try {
    await owner.unsafe(`alter table ${table} set (autovacuum_enabled = off)`);
    await db.execute(fill);
    await owner.unsafe(`delete from ${table}`);
    await owner.unsafe(`analyze ${table}`);
    await db.execute(fill);
  } finally {
    await owner.end();
  }
}
