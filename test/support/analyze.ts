import { sql } from "drizzle-orm";
import type { Database } from "../../src/platform/database/database.ts";
import { asSuperuser } from "./as-superuser.ts";
import type { Backend } from "./servers.ts";

/** Makes the statistics of a table, as PostgreSQL does by itself a while after its rows have changed. */
export async function analyze(backend: Backend, db: Database, table: string): Promise<void> {
  const statement = `analyze ${table}`;
  // PostgreSQL ignores it, with a warning, if another user than the owner of the table executes it.
  if (backend === "PostgreSQL") await asSuperuser(db, statement);
  else await db.execute(sql.raw(statement));
}
