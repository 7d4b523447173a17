/** Removing what has expired takes as long as there is to remove, however much has been removed before. */
import { expect, test } from "vitest";
import { cleanUp } from "../../../src/auth/janitor.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import { openDatabase } from "../../../src/platform/database/open.ts";
import { resolveDatabaseSettings } from "../../../src/platform/database/settings.ts";
import { createAuthStore, type Query } from "../../support/auth-store.ts";
import { backends } from "../../support/servers.ts";

const expired = 12_000;

/** Ten times as many are live, so that the index is the way to those that are not. */
async function seed(query: Query): Promise<void> {
  await query(`insert into auth.authorizations (id, client_id, identity_id, grant_type, scopes, created_at,
      client_generation, identity_generation, expires_at, access_expires_at, expiry_day, family_hash, refresh_hash)
    select gen_random_uuid(), 'app', 'user-' || n, 'auth', '{}', now(), 0, 0, now(), now(),
      (now() at time zone 'UTC')::date + case when n <= ${expired} then -1 else 9 end, '\\x00', '\\x00'
    from generate_series(1, ${expired * 11}) n`);
  await query("vacuum analyze auth.authorizations");
}

/** Entries of the index of days that were read since the start. */
async function readByDay(query: Query): Promise<number> {
  const [row] = await query(
    "select sum(idx_tup_read)::int as n from pg_stat_user_indexes where indexrelname like '%expiry_day%'",
  );
  return Number(row?.["n"]);
}

test.runIf(backends.includes("PostgreSQL"))(
  "what was removed is not gone past again and again during a dump",
  async () => {
    const store = await createAuthStore("PostgreSQL");
    try {
      await store.read(seed);
      const before = await store.read(readByDay);
      const settings = resolveDatabaseSettings(store.env, {
        environment: "development",
        dataDir: "",
        service: "auth",
      });
      await store.read(async (dump) => {
        // Its snapshot keeps what is removed from now on.
        await dump("begin isolation level repeatable read");
        await dump("select from auth.authorizations limit 1");
        const database = await openDatabase(settings.value ?? expect.fail("no settings"), authMigrations);
        await cleanUp(database.db);
        // The sessions report what they have read when they end.
        await database.close();
        await dump("commit");
      });
      const read = (await store.read(readByDay)) - before;
      const [left] = await store.read((query) => query("select count(*)::int as n from auth.authorizations"));
      expect(left?.["n"]).toBe(expired * 10);
      expect(read).toBeGreaterThanOrEqual(expired);
      expect(read).toBeLessThan(expired * 2);
    } finally {
      await store.drop();
    }
  },
);
