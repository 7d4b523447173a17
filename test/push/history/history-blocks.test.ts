/** How entries are kept: numbers of users, and a bit in the row that their block shares. */
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { uuidv7 } from "../../../src/platform/crypto/random.ts";
import type { Database, OpenDatabase } from "../../../src/platform/database/database.ts";
import { rawRows } from "../../../src/platform/database/sql/statements.ts";
import { pushMigrations } from "../../../src/push/database.ts";
import { forgetUser } from "../../../src/push/devices/remove-devices.ts";
import { entriesFor } from "../../../src/push/history/history-blocks.ts";
import { forgetHistory } from "../../../src/push/history/remove-history.ts";
import { blockSize } from "../../../src/push/schema.ts";
import { clearHistory, historyEntries, insertEntries } from "../../support/history-rows.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { createMigratedServiceDatabase, type ServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

/** When the identity was deleted: after all that the test has registered. */
const afterwards = new Date("2100-01-01");

describe.each(backends)("the blocks of the history on %s", (backend) => {
  let own: ServiceDatabase;
  let database: OpenDatabase;
  let db: Database;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    own = await createMigratedServiceDatabase(backend, pushMigrations);
    cleanup.defer(() => own.drop());
    database = await own.open();
    db = database.db;
  });
  beforeEach(() => clearHistory(db));

  const usersOf = async (notificationId: string) =>
    (
      await rows<{ user: string }>(
        db,
        sql`select user_id as user from ${historyEntries} where notification_id = ${notificationId}::uuid order by 1`,
      )
    ).map(({ user }) => user);
  const named = (from: number, to: number) =>
    sql`select 'user-' || n from generate_series(${from}::int, ${to}::int) n`;
  const sorted = (from: number, to: number) =>
    Array.from({ length: to - from + 1 }, (_, index) => `user-${from + index}`).sort();

  test("users of several blocks, the first and the last of each among them, have just the entries that they were given", async () => {
    const [all, some, again] = [uuidv7(1e12), uuidv7(1e12 + 1), uuidv7(1e12 + 2)];
    await insertEntries(db, all, named(1, 2 * blockSize));
    await insertEntries(db, some, named(blockSize - 1, blockSize + 2));
    // In two steps that overlap.
    await insertEntries(db, again, named(5, 9));
    await insertEntries(db, again, named(7, 600));
    expect(await usersOf(all)).toEqual(sorted(1, 2 * blockSize));
    expect(await usersOf(some)).toEqual(sorted(blockSize - 1, blockSize + 2));
    expect(await usersOf(again)).toEqual(sorted(5, 600));
    const [counted] = await rows<{ rows: number; places: number }>(
      db,
      sql`select (select count(*)::int from push.history_blocks where notification_id = ${all}::uuid) as rows,
        (select count(distinct user_number % ${sql.raw(`${blockSize}`)})::int from push.history_users) as places`,
    );
    expect(counted?.rows).toBeLessThanOrEqual(3);
    expect(counted?.places).toBe(blockSize);
  });

  test("users who are first sent to together have consecutive numbers, offset by offset and in the order of their devices", async () => {
    const found = sql`
      select 'user-' || n as person, (n % 3) * 60 as minutes, -n as device, null::bigint as known_number from generate_series(1, 30) n`;
    await rawRows(
      db,
      sql`with recipient as (${found}), ${entriesFor(sql`recipient`, sql`${uuidv7(1e12)}::uuid`)} select 1 as one`,
    );
    const numbered = await rows<{ n: number }>(
      db,
      sql`select substr(user_id, 6)::int as n from push.history_users order by user_number`,
    );
    const downFrom = (highest: number) => Array.from({ length: 10 }, (_, index) => highest - 3 * index);
    expect(numbered.map(({ n }) => n)).toEqual([...downFrom(30), ...downFrom(28), ...downFrom(29)]);
  });

  test("who has the entry already is not written again", async () => {
    const id = uuidv7(1e12);
    await insertEntries(db, id, named(1, 20));
    const written = () =>
      rows(
        db,
        sql`select ctid::text, xmin::text from push.history_blocks union all select ctid::text, xmin::text from push.history_users`,
      );
    const before = await written();
    await insertEntries(db, id, named(5, 15));
    expect(await written()).toEqual(before);
  });

  test("the number of a forgotten user is not given again, to that user or another", async () => {
    const [before, after] = [uuidv7(1e12), uuidv7(1e12 + 1)];
    await insertEntries(db, before, sql`values ('anna'), ('boris')`);
    await db.transaction((tx) => forgetUser(tx, "anna", afterwards));
    await insertEntries(db, after, sql`values ('anna'), ('clara')`);
    expect([await usersOf(before), await usersOf(after)]).toEqual([["boris"], ["anna", "clara"]]);
  });

  test("a forgotten user keeps a single entry that is to be kept, and without any has no number", async () => {
    await clearHistory(db);
    const id = uuidv7(1e12);
    await insertEntries(db, id, sql`values ('anna')`);
    await db.transaction((tx) => forgetHistory(tx, "anna", new Date(1e12)));
    expect(await usersOf(id)).toEqual(["anna"]);
    await db.transaction((tx) => forgetHistory(tx, "anna", new Date(1e12 + 1)));
    expect(await rows(db, sql`select user_id from push.history_users`)).toEqual([]);
  });

  test.runIf(backend === "PostgreSQL")(
    "processes that number the same users at once agree on the numbers, and lose no entry",
    async () => {
      const other = await own.open();
      cleanup.defer(() => other.close());
      for (let turn = 0; turn < 10; turn += 1) {
        await clearHistory(db);
        const [one, another] = [uuidv7(1e12), uuidv7(1e12 + 1)];
        await Promise.all([
          insertEntries(db, one, named(1, 80)),
          insertEntries(other.db, one, named(40, 120)),
          insertEntries(db, another, named(60, 100)),
          insertEntries(other.db, another, named(20, 70)),
        ]);
        expect([await usersOf(one), await usersOf(another)]).toEqual([sorted(1, 120), sorted(20, 100)]);
      }
    },
  );
});
