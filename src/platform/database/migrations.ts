/**
 * Migrations: SQL files in drizzle/, one history for each service. The history of what was run is kept in the
 * PostgreSQL schema `migrations`, in a table named after the service.
 */
import { fileURLToPath } from "node:url";
import { sql } from "drizzle-orm";
import { readMigrationFiles } from "drizzle-orm/migrator";
import { sqlState } from "../base/database-errors.ts";
import type { JobTables } from "../messaging/jobs.ts";
import type { Database } from "./database.ts";
import { nullable, text } from "./readers.ts";
import { computed, rows, selection } from "./statements.ts";

/** One service's migrations: its PostgreSQL schema, the folder of its history, and its job tables if it has any. */
export interface Migrations {
  readonly schema: string;
  readonly folder: URL;
  readonly jobs?: JobTables;
}

/** The same, as Drizzle's migrators take it. */
export function migrationConfig({ schema, folder }: Migrations) {
  return { migrationsFolder: fileURLToPath(folder), migrationsSchema: "migrations", migrationsTable: schema };
}

/** Whether every migration of this program has been run. Throws where the database does not answer. */
export async function isMigrated(db: Database, migrations: Migrations): Promise<boolean> {
  const newest = readMigrationFiles(migrationConfig(migrations)).at(-1)?.folderMillis ?? 0;
  const history = sql`${sql.identifier("migrations")}.${sql.identifier(migrations.schema)}`;
  const newestRun = selection({ at: computed(nullable(text), sql`max(created_at)::text`) });
  try {
    const [done] = await rows(db, newestRun, sql`select ${newestRun} from ${history}`);
    return Number(done?.at ?? 0) >= newest && (!migrations.jobs || (await hasQueues(db, migrations.jobs)));
  } catch (error) {
    // There is no history yet: undefined_table, invalid_schema_name, or no right to see it.
    if (["42P01", "3F000", "42501"].includes(sqlState(error) ?? "")) return false;
    throw error;
  }
}

async function hasQueues(db: Database, { schema, queues }: JobTables): Promise<boolean> {
  const known = selection({ name: computed(text, sql`name`) });
  const found = await rows(db, known, sql`select ${known} from ${sql.identifier(schema)}.queue`);
  return queues.every((queue) => found.some(({ name }) => name === queue.name));
}
