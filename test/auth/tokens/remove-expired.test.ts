/**
 * Removing what has expired takes as long as there is to remove, however much has been removed before, and goes on until
 * nothing is left, whoever else removes.
 */
import type { SQL } from "drizzle-orm";
import { describe, expect, onTestFinished, test } from "vitest";
import { cleanUp } from "../../../src/auth/janitor.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import type { Database } from "../../../src/platform/database/database.ts";
import { openDatabase } from "../../../src/platform/database/open.ts";
import { resolveDatabaseSettings } from "../../../src/platform/database/settings.ts";
import { type AuthStore, createAuthStore, type Query } from "../../support/auth-store.ts";
import { janitorRecord } from "../../support/janitor-record.ts";
import { backends } from "../../support/servers.ts";

/** Authorizations of which so many expired yesterday, and the others are live. */
async function insert(query: Query, expired: number, live: number): Promise<void> {
  await query(`insert into auth.authorizations (id, client_id, identity_id, grant_type, scopes, created_at,
      client_generation, identity_generation, expires_at, refreshed_at, expiry_day, family_hash, refresh_hash)
    select gen_random_uuid(), 'app', 'user-' || n, 'auth', '{}', now(), 0, 0, now(), now(),
      (now() at time zone 'UTC')::date + case when n <= ${expired} then -1 else 9 end, '\\x00', '\\x00'
    from generate_series(1, ${expired + live}) n`);
}

async function seed(query: Query, expired: number, live: number): Promise<void> {
  await insert(query, expired, live);
  await query("vacuum analyze auth.authorizations");
}

/** Entries of the index of days that were read since the start. */
async function readByDay(query: Query): Promise<number> {
  const [row] = await query(
    "select sum(idx_tup_read)::int as n from pg_stat_user_indexes where indexrelname like '%expiry_day%'",
  );
  return Number(row?.["n"]);
}

async function left(query: Query): Promise<number> {
  const [row] = await query("select count(*)::int as n from auth.authorizations");
  return Number(row?.["n"]);
}

async function createStore(): Promise<AuthStore> {
  const store = await createAuthStore("PostgreSQL");
  onTestFinished(() => store.drop());
  return store;
}

/** A database of whose look-ups the first is followed by something else, before anything is done with what it found. */
function withAfterFirst(db: Database, then: () => Promise<void>): Database {
  let isFirst = true;
  return new Proxy(db, {
    get(target, key, receiver) {
      if (key !== "execute") return Reflect.get(target, key, receiver);
      return async (statement: SQL) => {
        const found = await target.execute(statement);
        if (isFirst) {
          isFirst = false;
          await then();
        }
        return found;
      };
    },
  });
}

/**
 * One round of a process.
 * @param then done once it has looked up what is due for the first time
 * @returns what its janitor reports
 */
async function round({ env }: AuthStore, then: () => Promise<void> = async () => undefined) {
  const record = janitorRecord();
  const settings = resolveDatabaseSettings(env, { environment: "development", dataDir: "", service: "auth" });
  const database = await openDatabase(settings.value ?? expect.fail("no settings"), authMigrations);
  try {
    await cleanUp(withAfterFirst(database.db, then), { observer: record.observer });
  } finally {
    // The sessions report what they have read when they end.
    await database.close();
  }
  return record;
}

describe.runIf(backends.includes("PostgreSQL"))("expired authorizations", () => {
  test("what was removed is not gone past again and again during a dump", async () => {
    const [expired, live] = [12_000, 120_000];
    const store = await createStore();
    // Ten times as many are live, so that the index is the way to those that are not.
    await store.read((query) => seed(query, expired, live));
    const before = await store.read(readByDay);
    await store.read(async (dump) => {
      // Its snapshot keeps what is removed from now on.
      await dump("begin isolation level repeatable read");
      await dump("select from auth.authorizations limit 1");
      await round(store);
      await dump("commit");
    });
    const read = (await store.read(readByDay)) - before;
    expect(await store.read(left)).toBe(live);
    expect(read).toBeGreaterThanOrEqual(expired);
    expect(read).toBeLessThan(expired * 2);
  });

  /** More than are looked up at once. */
  const many = 52_000;

  test("are removed where others have meanwhile removed all that was looked up", async () => {
    const store = await createStore();
    await store.read((query) => seed(query, many, 10));
    const { caughtUp, rows } = await round(store, () =>
      store.read(async (other) => {
        await other("delete from auth.authorizations where expiry_day < current_date");
        await insert(other, 20, 0);
      }),
    );
    expect(caughtUp).toContain("authorizations");
    expect(rows["authorizations"]).toBe(20);
    expect(await store.read(left)).toBe(10);
  }, 60_000);

  test.each([many, 100])(
    "are not said to be removed while others have locked them all: %i",
    async (due) => {
      const store = await createStore();
      await store.read((query) => seed(query, due, 10));
      await store.read(async (other) => {
        await other("begin");
        await other("select from auth.authorizations for update");
        const { caughtUp, rounds } = await round(store);
        expect(caughtUp).not.toContain("authorizations");
        expect(caughtUp).toContain("attempts");
        expect(rounds()).toBe(1);
        await other("commit");
      });
      expect((await round(store)).caughtUp).toContain("authorizations");
      expect(await store.read(left)).toBe(10);
    },
    60_000,
  );

  test("are not said to be removed while others have locked one of them", async () => {
    const store = await createStore();
    await store.read((query) => seed(query, 100, 10));
    await store.read(async (other) => {
      await other("begin");
      await other("select from auth.authorizations where expiry_day < current_date limit 1 for update");
      const { caughtUp, rows } = await round(store);
      expect(caughtUp).not.toContain("authorizations");
      expect(rows["authorizations"]).toBe(99);
      await other("commit");
    });
  });
});
