/** A database whose tables an earlier version has made, by migrations that this one does not continue. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sql } from "drizzle-orm";
import { describe, expect, onTestFinished, test } from "vitest";
import { authMigrations } from "../../../../src/auth/service.ts";
import type { Migrations } from "../../../../src/platform/database/migrations/migrations.ts";
import { openDatabase } from "../../../../src/platform/database/open.ts";
import { createTestDatabase } from "../../../support/backends.ts";
import { migrate } from "../../../support/migrated-database.ts";
import { earlierMigrations, withNextMigration } from "../../../support/next-migration.ts";
import { killAll, startNode } from "../../../support/program.ts";
import { rows } from "../../../support/rows.ts";
import { backends, databaseEnvironment } from "../../../support/servers.ts";
import { createServiceDatabase } from "../../../support/service-database.ts";
import { suiteCleanup } from "../../../support/suite-cleanup.ts";

const cleanup = suiteCleanup();
cleanup.defer(killAll);

const earlier = () =>
  earlierMigrations(
    authMigrations,
    "create schema auth;--> statement-breakpoint\ncreate table auth.clients (id int);",
  );
const sentence =
  /^The tables of auth were made by an earlier version, whose migrations this one does not continue: [^.\n]+\.$/;

describe.each(backends)("on %s", (backend) => {
  async function databaseOf(migrations: Migrations) {
    const own = await createServiceDatabase(backend, authMigrations);
    onTestFinished(() => own.drop());
    const database = await openDatabase(own.settings, migrations);
    await database.migrate();
    await database.close();
    return own;
  }

  test("it is refused, with what to do, and keeps what it has", async () => {
    const own = await databaseOf(earlier());
    const database = await own.open();
    for (const use of [database.migrate, database.isMigrated]) {
      const error: unknown = await use().catch((reason: unknown) => reason);
      if (!(error instanceof Error)) throw new Error("it was taken");
      expect(error.message).toMatch(sentence);
      const { settings } = own;
      expect(error.message).toContain(
        settings.kind === "embedded" ? `delete ${settings.dataDir}` : "DB_NAME",
      );
    }
    const found = sql`select tablename from pg_tables where schemaname = 'auth'`;
    expect(await rows(database.db, found)).toEqual([{ tablename: "clients" }]);
  });

  test("a history that goes on further than the program's is not one: a newer version has migrated", async () => {
    const own = await databaseOf(withNextMigration(authMigrations, "select 1;"));
    const database = await own.open();
    expect(await database.isMigrated()).toBe(true);
    await database.migrate();
    expect(await database.isMigrated()).toBe(true);
  });
});

test.runIf(backends.includes("PostgreSQL")).each(["src/migrate.ts", "src/start.js"])(
  "%s ends with that sentence, and exit code 1",
  async (file) => {
    const database = await createTestDatabase();
    onTestFinished(() => database.drop());
    await migrate(database, earlier());
    const dataDir = mkdtempSync(join(tmpdir(), "gatepost-foreign-"));
    onTestFinished(() => rmSync(dataDir, { recursive: true }));
    const program = startNode(file, {
      ...databaseEnvironment(database),
      ...{ SERVICES: "auth", DATA_DIR: dataDir },
      ...{ SERVER_PORT: "0", GRPC_PORT: "0", MANAGEMENT_PORT: "0" },
    });
    expect(await program.ended(), program.output()).toBe(1);
    expect(program.output().split("The tables of auth were made by an earlier version")).toHaveLength(2);
    expect(program.output()).not.toMatch(/^\s+at /m);
  },
);
