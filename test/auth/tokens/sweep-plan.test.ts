/** What runs every second finds authorizations by index, whatever PostgreSQL believes of how many have ended. */
import { expect, test } from "vitest";
import { cleanUp } from "../../../src/auth/janitor.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import { sweepAuthorizations } from "../../../src/auth/tokens/sweep-authorizations.ts";
import { openDatabase } from "../../../src/platform/database/open.ts";
import { resolveDatabaseSettings } from "../../../src/platform/database/settings.ts";
import { createAuthStore, type Query } from "../../support/auth-store.ts";
import { backends } from "../../support/servers.ts";

/** Three clients that were disabled for good and listed again, one that is disabled for good, and endings of all ages. */
async function seed(query: Query): Promise<void> {
  await query(`insert into auth.clients (client_id, client_name, secret_hashes, authentication_methods, grant_types,
      scopes, client_settings, token_settings, registered_at, generation, disabled_at)
    select 'client-' || n, 'c', '{}', '{}', '{}', '{}', '{}', '{"refreshGraceSeconds": 30}', now(), 1,
      case when n = 3 then now() - interval '9 days' end
    from generate_series(0, 3) n`);
  await query(`insert into auth.authorizations (id, client_id, identity_id, grant_type, scopes, created_at,
      client_generation, identity_generation, expires_at, refreshed_at, expiry_day, family_hash, refresh_hash,
      revoked_at, revocation_reason)
    select gen_random_uuid(), 'client-' || n % 4, 'user-' || n % 50000, 'auth', '{}', now(), case when n % 4 = 3 then 0
      else 1 end, 1000000, now() + interval '9 days', now(), current_date + 9, '\\x00', '\\x00',
      case when n % 4 = 3 then now() end, case when n % 4 = 3 then 'CLIENT_DISABLED' end
    from generate_series(1, 200000) n`);
  await query(`insert into auth.identity_endings (identity_id, reason, ended_at, swept_at)
    select 'user-' || n, 'IDENTITY_DELETED', now(), case when n > 1000 then now() - n % 3 * interval '1 day' end
    from generate_series(1, 3000) n`);
  await query("vacuum analyze");
}

/** Rows of authorizations that were read without an index since the start. */
async function readWithoutIndex(query: Query): Promise<number> {
  const [row] = await query(`
    select sum(seq_tup_read)::int as n from pg_stat_user_tables where relname like 'authorizations%'`);
  return Number(row?.["n"]);
}

test.runIf(backends.includes("PostgreSQL"))(
  "sweeps and the janitor read no table of authorizations as a whole",
  async () => {
    const store = await createAuthStore("PostgreSQL");
    try {
      await store.read(seed);
      const before = await store.read(readWithoutIndex);
      const settings = resolveDatabaseSettings(store.env, {
        environment: "development",
        dataDir: "",
        service: "auth",
      }).value;
      const database = await openDatabase(settings ?? expect.fail("no settings"), authMigrations);
      // Often enough for PostgreSQL to have plans for any parameters.
      for (let turn = 0; turn < 8; turn += 1) {
        await sweepAuthorizations(database.db);
        await cleanUp(database.db);
      }
      // The sessions report what they have read when they end.
      await database.close();
      expect((await store.read(readWithoutIndex)) - before).toBe(0);
    } finally {
      await store.drop();
    }
  },
);
