import type { SQL } from "drizzle-orm";
import type { Database } from "../../src/platform/database/database.ts";
import { asSuperuser } from "./as-superuser.ts";

/**
 * Fills a table whose statistics say that it is empty: they are made after its rows were deleted, and before VACUUM
 * removes their pages. PostgreSQL then expects one row, however many are inserted, until the next ANALYZE. A table is
 * like that for a while if its rows come and go in bursts. From now on PostgreSQL analyzes this one only when asked to.
 * @param table with its schema
 * @param fill inserts the rows; it is executed twice
 */
export async function takenForEmpty(db: Database, table: string, fill: SQL): Promise<void> {
  await asSuperuser(db, `alter table ${table} set (autovacuum_enabled = off)`);
  await db.execute(fill);
  await asSuperuser(db, `delete from ${table}`, `analyze ${table}`);
  await db.execute(fill);
}
