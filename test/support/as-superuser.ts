import { sql } from "drizzle-orm";
import postgres from "postgres";
import type { Database } from "../../src/platform/database/database.ts";
import { requiredPostgresUrl } from "./postgresql/server.ts";
import { rows } from "./rows.ts";

/** Executes statements on the PostgreSQL database of `db` that its own user may not, one after the other. */
export async function asSuperuser(db: Database, ...statements: readonly string[]): Promise<void> {
  const [database] = await rows<{ name: string }>(db, sql`select current_database() as name`);
  const url = requiredPostgresUrl();
  url.pathname = `/${database?.name}`;
  const superuser = postgres(url.href, { max: 1, onnotice: () => undefined });
  try {
    for (const statement of statements) await superuser.unsafe(statement);
  } finally {
    await superuser.end();
  }
}
