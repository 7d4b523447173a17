/** The database of a benchmark: PostgreSQL as it comes, with commits that last, and the tables of the push service. */
import type { OpenDatabase } from "../../src/platform/database/database.ts";
import { openDatabase } from "../../src/platform/database/open.ts";
import { pushMigrations } from "../../src/push/database.ts";
import { createTestDatabase, postgresSettings } from "../support/backends.ts";
import { installPostgresql } from "../support/postgresql/binaries.ts";
import { postgresUrl, providePostgresql, requiredPostgresUrl } from "../support/postgresql/server.ts";
import { databaseEnvironment } from "../support/servers.ts";

export interface BenchDatabase {
  readonly database: OpenDatabase;
  /** The same database, as who may do anything in it. */
  readonly adminUrl: string;
  /** The settings that point a service at it. */
  readonly environment: Record<string, string>;
}

/** Runs a measurement in a database of its own. @param run returns whether all aims are met, for the exit code */
export async function inBenchDatabase(run: (bench: BenchDatabase) => Promise<boolean>): Promise<void> {
  const stopPostgresql = await providePostgresql({ durable: true });
  if (!postgresUrl()) {
    process.stdout.write(`This measurement needs PostgreSQL. ${installPostgresql}\n`);
    process.exit(1);
  }
  const holder = await createTestDatabase();
  const adminUrl = requiredPostgresUrl();
  adminUrl.pathname = `/${holder.name}`;
  const database = await openDatabase({ ...postgresSettings(holder), poolSize: 4 }, pushMigrations);
  try {
    await database.migrate();
    const isMet = await run({
      database,
      adminUrl: adminUrl.href,
      environment: databaseEnvironment(holder),
    });
    process.exitCode = isMet ? 0 : 1;
  } finally {
    await database.close();
    await holder.drop();
    await stopPostgresql();
  }
}
