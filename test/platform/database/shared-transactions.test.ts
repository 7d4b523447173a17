/** Transactions that are shared: one commit for many pieces of work, each of which fails alone. */
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, test } from "vitest";
import type { Database } from "../../../src/platform/database/database.ts";
import { shareTransactions } from "../../../src/platform/database/shared-transactions.ts";
import { pushMigrations } from "../../../src/push/database.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { createMigratedServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

describe.each(backends)("shared transactions on %s", (backend) => {
  let db: Database;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const own = await createMigratedServiceDatabase(backend, pushMigrations);
    cleanup.defer(() => own.drop());
    db = (await own.open()).db;
  });

  /** Writes a row. @returns its transaction */
  async function write(tx: Database, n: number): Promise<string> {
    const [found] = await rows<{ id: string }>(
      tx,
      sql`insert into push.replays (through_id) values (${n}::int) returning txid_current()::text as id`,
    );
    return found?.id ?? "";
  }
  async function written(from: number): Promise<number[]> {
    const found = await rows<{ n: number }>(
      db,
      sql`select through_id::int as n from push.replays where through_id >= ${from}::int order by 1`,
    );
    return found.map(({ n }) => n);
  }

  test("what comes while one runs is done in the next, and resolves when it is committed", async () => {
    const share = shareTransactions(db);
    const [first, ...others] = await Promise.all([1, 2, 3, 4].map((n) => share((tx) => write(tx, n))));
    expect(new Set(others).size).toBe(1);
    expect(others).not.toContain(first);
    expect(await written(1)).toEqual([1, 2, 3, 4]);
  });

  test.each<[string, (tx: Database) => Promise<unknown>]>([
    ["statement", (tx) => tx.execute(sql`select 1 / 0`)],
    ["check of its own", () => Promise.reject(new Error("not so"))],
  ])("a failed %s undoes its own work alone", async (_, fail) => {
    const share = shareTransactions(db);
    const results = await Promise.allSettled(
      [10, 11, 12, 13].map((n) =>
        share(async (tx) => {
          await write(tx, n);
          if (n === 12) await fail(tx);
          await write(tx, n + 10);
          return n;
        }),
      ),
    );
    expect(results.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "rejected", "fulfilled"]);
    expect(await written(10)).toEqual([10, 11, 13, 20, 21, 23]);
    await db.execute(sql`delete from push.replays`);
  });
});
