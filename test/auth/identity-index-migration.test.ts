/** The index of authorizations by identity is replaced, partition by partition, while the version before writes. */
import { sql } from "drizzle-orm";
import { describe, expect, onTestFinished, test } from "vitest";
import { authMigrations } from "../../src/auth/service.ts";
import type { Database } from "../../src/platform/database/database.ts";
import { openDatabase } from "../../src/platform/database/open.ts";
import { olderMigrations } from "../support/older-migrations.ts";
import { rows } from "../support/rows.ts";
import { backends } from "../support/servers.ts";
import { createServiceDatabase } from "../support/service-database.ts";

const grant = (db: Database) =>
  db.execute(sql`
    insert into auth.authorizations (id, client_id, identity_id, grant_type, scopes, created_at, client_generation,
      identity_generation, expires_at, access_expires_at, expiry_day, family_hash, refresh_hash)
    select gen_random_uuid(), 'app', 'user-' || n, 'auth', '{}', now(), 0, 0, now(), now(), current_date, '\\x00', '\\x00'
    from generate_series(1, 1000) n`);

describe.each(backends)("the index by identity on %s", (backend) => {
  test("is one by identity and client afterwards, valid in all partitions", async () => {
    const own = await createServiceDatabase(backend, authMigrations);
    onTestFinished(() => own.drop());
    const before = await openDatabase(own.settings, olderMigrations(authMigrations, 7));
    await before.migrate();
    await grant(before.db);
    await before.close();

    const { db, migrate } = await own.open();
    await migrate();
    await grant(db);
    const indexes = sql`
      select count(*)::int as n, bool_and(indisvalid) as valid from pg_index
      where indrelid in (select oid from pg_class where relname ~ '^authorizations(_[0-7])?$')
        and pg_get_indexdef(indexrelid) ~ `;
    expect(
      await rows(db, sql`${indexes} '\\(identity_id, client_id\\) WHERE \\(revoked_at IS NULL\\)'`),
    ).toEqual([{ n: 9, valid: true }]);
    expect(await rows(db, sql`${indexes} '\\(identity_id\\)'`)).toEqual([{ n: 0, valid: null }]);
    // The index of the table has taken those of the partitions, and has built none.
    const taken = sql`
      select count(*)::int as n from pg_inherits
      where inhparent = 'auth.authorizations_identity_client'::regclass
        and inhrelid::regclass::text ~ '^auth\\.authorizations_[0-7]_identity_client$'`;
    expect(await rows(db, taken)).toEqual([{ n: 8 }]);
    expect(await rows(db, sql`select count(*)::int as n from auth.authorizations`)).toEqual([{ n: 2000 }]);
  });
});
