/** What it costs to ask whether a client has an active authorization for an identity, which guesses do in floods. */
import { setTimeout } from "node:timers/promises";
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { authMigrations } from "../../../src/auth/service.ts";
import { createHasActiveAuthorization } from "../../../src/auth/tokens/has-active-authorization.ts";
import type { Database } from "../../../src/platform/database/database.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { createMigratedServiceDatabase, type ServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const perUser = 2_000;

describe.each(backends)("whether there is an active authorization, on %s", (backend) => {
  let own: ServiceDatabase;
  let db: Database;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    own = await createMigratedServiceDatabase(backend, authMigrations);
    cleanup.defer(() => own.drop());
    ({ db } = await own.open());
    await db.execute(sql`
      insert into auth.clients (client_id, client_name, secret_hashes, authentication_methods, grant_types, scopes,
        client_settings, token_settings, registered_at)
      select client, 'Client', '{}', '{}', '{}', '{}', '{}', '{}', now() from unnest('{busy, limited}'::text[]) as client`);
    // One user has many authorizations of one client; others have one each of the other client, or an expired one.
    await db.execute(sql`
      insert into auth.authorizations (id, client_id, identity_id, grant_type, scopes, created_at, client_generation,
        identity_generation, expires_at, refreshed_at, expiry_day, family_hash, refresh_hash)
      select gen_random_uuid(), client, identity, 'auth', '{}', now(), 0, 0, until, until, until::date, '\\x00', '\\x00'
      from (
        select 'busy' as client, 'heavy' as identity, now() + interval '9 days' as until
          from generate_series(1, ${perUser}::int)
        union all select 'limited', 'user-' || n, now() + interval '9 days' from generate_series(1, 200) n
        union all select 'limited', 'late', now() - interval '1 second') as granted`);
  });

  /** Rows of authorizations that a transaction has read; what is reported only grows until it ends. */
  async function readRows(tx: Database): Promise<number> {
    const [row] = await rows<{ n: number }>(
      tx,
      sql`select sum(seq_tup_read + idx_tup_fetch)::int as n from pg_stat_xact_user_tables
        where relname like 'authorizations%'`,
    );
    return row?.n ?? expect.fail("no statistics");
  }

  test("it is said of each pair of identity and client, of many at once in one statement", async () => {
    const execute = vi.spyOn(db, "execute");
    onTestFinished(() => execute.mockRestore());
    const isActive = createHasActiveAuthorization(db);
    const users = Array.from({ length: 100 }, (_, n) => `user-${n + 1}`);
    const pairs = [...users, "heavy", "late", "nobody"].flatMap((id) => [
      [id, "limited"] as const,
      [id, "busy"] as const,
    ]);
    const found = await Promise.all(pairs.map(([id, client]) => isActive(id, client)));
    const live = pairs.filter((_, index) => found[index]).map((pair) => pair.join(" at "));
    expect(live).toEqual([...users.map((id) => `${id} at limited`), "heavy at busy"]);
    expect(execute).toHaveBeenCalledOnce();
  });

  test("one statement is under way at a time, however many ask", async () => {
    let running = 0;
    let most = 0;
    const slow: Database = Object.create(db, {
      execute: {
        async value(...parameters: Parameters<Database["execute"]>) {
          running += 1;
          most = Math.max(most, running);
          await setTimeout(20);
          return db.execute(...parameters).finally(() => {
            running -= 1;
          });
        },
      },
    });
    const isActive = createHasActiveAuthorization(slow);
    const asked: Promise<boolean>[] = [];
    for (let n = 1; n <= 10; n += 1) {
      asked.push(isActive(`user-${n}`, "limited"));
      // Longer than look-ups wait for a statement that is under way, where there may be several.
      await setTimeout(5);
    }
    expect(new Set(await Promise.all(asked))).toEqual(new Set([true]));
    expect(most).toBe(1);
  });

  test("no authorization of another client is read for it", async () => {
    await db.transaction(async (tx) => {
      const before = await readRows(tx);
      const isActive = createHasActiveAuthorization(tx);
      expect(await isActive("heavy", "limited")).toBe(false);
      expect((await readRows(tx)) - before).toBe(0);
      expect(await isActive("heavy", "busy")).toBe(true);
      expect((await readRows(tx)) - before).toBeGreaterThan(0);
    });
  });
});
