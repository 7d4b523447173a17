/** What counting in the database costs: the counter of a client is one row for everybody who signs in with it. */
import { expect, test } from "vitest";
import { createKeyOf } from "../../../src/auth/limits/attempt-counters.ts";
import { createDatabaseCounters } from "../../../src/auth/limits/database-counters.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import type { Database } from "../../../src/platform/database/database.ts";
import { createMigratedServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const cleanup = suiteCleanup();

test("attempts of one counter that come at once share a statement, and so do those that are taken back", async () => {
  const own = await createMigratedServiceDatabase("PGlite", authMigrations);
  cleanup.defer(() => own.drop());
  const { db } = await own.open();
  let statements = 0;
  const counting: Database = Object.create(db, {
    execute: {
      value(...parameters: Parameters<Database["execute"]>) {
        statements += 1;
        return db.execute(...parameters);
      },
    },
  });
  const counters = createDatabaseCounters(counting, createKeyOf("a secret of the settings"));
  const client = { rule: { name: "client", failures: 1000, windowSeconds: 60 }, subject: "an app" };
  const attempts = await Promise.all(Array.from({ length: 50 }, () => counters.count(client)));
  expect(attempts.map((attempt) => attempt?.count)).toEqual(attempts.map((_, index) => index + 1));
  expect(statements).toBe(2);
  await Promise.all(attempts.map((attempt) => attempt?.withdraw()));
  expect(statements).toBe(4);
  expect((await counters.count(client))?.count).toBe(1);
});
