/**
 * PostgreSQL databases in which the migrations of both services have been run. They are copies of one that is made
 * once in a run, as migrating takes longer than most tests.
 */
import postgres from "postgres";
import { authMigrations } from "../../src/auth/service.ts";
import type { Migrations } from "../../src/platform/database/migrations/migrations.ts";
import { openDatabase } from "../../src/platform/database/open.ts";
import { pushMigrations } from "../../src/push/database.ts";
import { createTestDatabase, postgresSettings, type TestDatabase, templateOfRun } from "./backends.ts";
import { requiredPostgresUrl } from "./postgresql/server.ts";

/** Any fixed number. The worker that makes the template holds it as an advisory lock. */
const templateLock = 7_214_034;

let made: Promise<string> | undefined;

/** Creates a copy for a test's own use. */
export async function createMigratedDatabase(): Promise<TestDatabase> {
  made ??= provideTemplate();
  return createTestDatabase({ template: await made });
}

/** Runs the migrations of one service there. */
export async function migrate(database: TestDatabase, migrations: Migrations): Promise<void> {
  const opened = await openDatabase(postgresSettings(database), migrations);
  await opened.migrate();
  await opened.close();
}

/** Makes the template unless another worker has. @returns its name */
async function provideTemplate(): Promise<string> {
  const admin = postgres(requiredPostgresUrl().href, { max: 1, onnotice: () => undefined });
  try {
    await admin`select pg_advisory_lock(${templateLock})`;
    const [found] = await admin`select from pg_database where datname = ${templateOfRun()}`;
    if (found) return templateOfRun();
    const database = await createTestDatabase();
    for (const migrations of [authMigrations, pushMigrations]) await migrate(database, migrations);
    // It has this name only once it is whole.
    await admin.unsafe(`alter database ${database.name} rename to ${templateOfRun()}`);
    return templateOfRun();
  } finally {
    await admin.end();
  }
}
