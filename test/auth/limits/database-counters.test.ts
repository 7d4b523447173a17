/** What counting in the database costs: the counter of a client is one row for everybody who signs in with it. */
import { expect, test } from "vitest";
import { createKeyOf } from "../../../src/auth/limits/attempt-counters.ts";
import { createDatabaseCounters } from "../../../src/auth/limits/database-counters.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import type { Database } from "../../../src/platform/database/database.ts";
import { createMigratedServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const cleanup = suiteCleanup();

/** Counters, and how many statements they have had executed. */
async function countedCounters() {
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
  const counters = createDatabaseCounters(counting, createKeyOf("https://issuer"));
  return { counters, statements: () => statements };
}

test("looks that come at once share a statement, and each gets what it asked for", async () => {
  const { counters, statements } = await countedCounters();
  const client = { rule: { name: "client", failures: 2, windowSeconds: 60 }, subject: "an app" };
  const full = { rule: { name: "password", failures: 3, windowSeconds: 300 }, subject: "identity full" };
  const counts = [client, client, full, full, full].map((counter) => counters.count(counter));
  expect(await Promise.all(counts)).not.toContain(undefined);
  const before = statements();
  const asked = Array.from({ length: 100 }, (_, index) =>
    index % 10 === 0 ? full : { rule: full.rule, subject: `identity ${index}` },
  );
  const found = await Promise.all(asked.map((own) => counters.full([own, client])));
  expect(statements() - before).toBe(1);
  for (const [index, one] of found.entries()) {
    const own = asked[index];
    expect(one.map(({ counter }) => counter)).toEqual(own === full ? [full, client] : [client]);
  }
  expect(found[0]?.map(({ waitSeconds }) => Math.ceil(waitSeconds / 60))).toEqual([5, 1]);
  // The same row is full by one rule, and not by another.
  expect(await counters.full([{ ...client, rule: { ...client.rule, failures: 3 } }])).toEqual([]);
});

test("attempts of one counter that come at once share a statement, and so do those that are taken back", async () => {
  const { counters, statements } = await countedCounters();
  const client = { rule: { name: "client", failures: 1000, windowSeconds: 60 }, subject: "an app" };
  const attempts = await Promise.all(Array.from({ length: 50 }, () => counters.count(client)));
  expect(attempts.map((attempt) => attempt?.count)).toEqual(attempts.map((_, index) => index + 1));
  expect(statements()).toBe(2);
  await Promise.all(attempts.map((attempt) => attempt?.withdraw()));
  expect(statements()).toBe(4);
  expect((await counters.count(client))?.count).toBe(1);
});
