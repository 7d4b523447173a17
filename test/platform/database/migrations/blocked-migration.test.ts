/** A migration whose tables somebody else has locked, such as pg_dump, which keeps its locks until it has read all. */
import { setTimeout } from "node:timers/promises";
import { sql } from "drizzle-orm";
import postgres from "postgres";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { OpenDatabase } from "../../../../src/platform/database/database.ts";
import { databaseFailure } from "../../../../src/platform/database/failure.ts";
import {
  MigrationBlockedError,
  migrateWithRetries,
} from "../../../../src/platform/database/migrations/migrations.ts";
import { openDatabase } from "../../../../src/platform/database/open.ts";
import { pushMigrations } from "../../../../src/push/database.ts";
import { withNextMigration } from "../../../support/next-migration.ts";
import { requiredPostgresUrl } from "../../../support/postgresql/server.ts";
import { backends } from "../../../support/servers.ts";
import { createServiceDatabase, type ServiceDatabase } from "../../../support/service-database.ts";
import { suiteCleanup } from "../../../support/suite-cleanup.ts";

describe.runIf(backends.includes("PostgreSQL"))("a migration of a table that is being read", () => {
  let own: ServiceDatabase;
  let database: OpenDatabase;
  let admin: postgres.Sql;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    own = await createServiceDatabase("PostgreSQL", pushMigrations);
    cleanup.defer(() => own.drop());
    if (own.settings.kind !== "postgres") throw new Error("not PostgreSQL");
    database = await own.open();
    await database.migrate();
    const url = requiredPostgresUrl();
    url.pathname = `/${own.settings.name}`;
    admin = postgres(url.href, {
      max: 1,
      onnotice: () => undefined,
      connection: { application_name: "pg_dump" },
    });
    cleanup.defer(() => admin.end());
  });

  test("lets others write meanwhile, says whom it waits for, and ends once the table is free", async () => {
    let isFree = false;
    const said: string[] = [];
    const free = Promise.withResolvers<void>();
    const reading = Promise.withResolvers<void>();
    const dump = admin.begin(async (tx) => {
      await tx`lock table push.outbox in access share mode`;
      reading.resolve();
      await free.promise;
      isFree = true;
    });
    await reading.promise;
    const migrations = withNextMigration(pushMigrations, "ALTER TABLE push.outbox ADD COLUMN more text;");
    const newer = await openDatabase(own.settings, migrations);
    onTestFinished(() => newer.close());
    const migrated = migrateWithRetries(newer, {
      retryForMs: 60_000,
      blocked: ({ message }) => said.push(message),
    });
    let isMigrated = false;
    const done = migrated.then(() => {
      isMigrated = true;
    });
    const waits: number[] = [];
    while (said.length < 2) {
      const started = performance.now();
      await database.db.execute(sql`
        insert into push.outbox (id, type, subject, data, occurred_at)
        values (gen_random_uuid(), 't', 's', '{}', now())`);
      waits.push(performance.now() - started);
      await setTimeout(10);
    }
    expect(isMigrated).toBe(false);
    expect(isFree).toBe(false);
    expect(waits.length).toBeGreaterThan(20);
    expect(Math.max(...waits)).toBeLessThan(2_000);
    expect(said[0]).toMatch(
      /^A migration needs a table that another session has locked\. Locks are held by pg_dump \(process \d+, user \w+\)/,
    );
    free.resolve();
    await dump;
    await done;
    expect(await newer.isMigrated()).toBe(true);
  }, 60_000);

  test("gives up when its time is over, with the reason", async () => {
    const free = Promise.withResolvers<void>();
    const reading = Promise.withResolvers<void>();
    const dump = admin.begin(async (tx) => {
      await tx`lock table migrations.push in access exclusive mode`;
      reading.resolve();
      await free.promise;
    });
    await reading.promise;
    const error = await migrateWithRetries(database, { retryForMs: 2_500, blocked() {} }).catch(
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(MigrationBlockedError);
    expect(databaseFailure(error)).toContain("Locks are held by pg_dump (process ");
    free.resolve();
    await dump;
  }, 60_000);
});
