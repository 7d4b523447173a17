/** A database with what a janitor cleans up, and a look into it, for the tests of a file. */
import { randomUUID } from "node:crypto";
import { type SQL, sql } from "drizzle-orm";
import { beforeAll, beforeEach } from "vitest";
import { cleanUp } from "../../src/auth/janitor.ts";
import { authMigrations } from "../../src/auth/service.ts";
import { endIdentity } from "../../src/auth/tokens/end-authorizations.ts";
import { sweepAuthorizations } from "../../src/auth/tokens/sweep-authorizations.ts";
import type { OpenDatabase } from "../../src/platform/database/database.ts";
import { rows } from "../support/rows.ts";
import type { Backend } from "../support/servers.ts";
import { createMigratedServiceDatabase, type ServiceDatabase } from "../support/service-database.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";

export const day = 24 * 60 * 60;

interface Authorization {
  /** Seconds until the later of its tokens expires. */
  expires?: number;
  identityId?: string;
  clientId?: string;
}

const tables = [
  "authorizations",
  "replaced_tokens",
  "rotation_batches",
  "identity_endings",
  "organization_endings",
  "revoked_access_tokens",
  "redeemed_otp_proofs",
  "attempts",
  "challenge_sessions",
  "sent_codes",
  "open_breakers",
  "outbox",
  "clients",
];

/** The moment in so many seconds, by the database's clock. */
export const at = (seconds: number): SQL => sql`clock_timestamp() + ${seconds}::int * interval '1 second'`;

/** For a suite: its database is empty at the beginning of each test, but for one client. */
export function janitorOn(backend: Backend) {
  let own: ServiceDatabase;
  let database: OpenDatabase;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    own = await createMigratedServiceDatabase(backend, authMigrations);
    cleanup.defer(() => own.drop());
    database = await own.open();
  });
  beforeEach(async () => {
    for (const table of tables) {
      await database.db.execute(sql`delete from ${sql.identifier("auth")}.${sql.identifier(table)}`);
    }
    await client("backend");
  });

  async function client(id: string, grace = 30) {
    await database.db.execute(sql`
      insert into auth.clients (client_id, client_name, secret_hashes, authentication_methods, grant_types, scopes,
        client_settings, token_settings, registered_at)
      values (${id}, ${id}, '{}', '{}', '{}', '{}', '{}', ${JSON.stringify({ refreshGraceSeconds: grace })}::text::jsonb,
        now())`);
  }
  async function authorization({ expires = 100, identityId = "u", clientId = "backend" }: Authorization) {
    const id = randomUUID();
    await database.db.execute(sql`
      insert into auth.authorizations (id, client_id, identity_id, grant_type, scopes, created_at, client_generation,
        identity_generation, expires_at, refreshed_at, expiry_day, family_hash, refresh_hash)
      select ${id}::uuid, ${clientId}, ${identityId}, 'auth', '{}', now(),
        (select generation from auth.clients where client_id = ${clientId}),
        coalesce((select max(generation) from auth.identity_endings where identity_id = ${identityId}), 0),
        ${at(expires)}, ${at(expires)}, ((${at(expires)}) at time zone 'UTC')::date, '\\x00', '\\x00'`);
    return id;
  }
  /** What is kept for a retry of a refresh. @param seen seconds since its commit was seen to succeed */
  async function replaced(authorizationId: string, seen: number | undefined) {
    const batch = randomUUID();
    await database.db.execute(sql`
      insert into auth.replaced_tokens values (${authorizationId}::uuid, '\\x00', '\\x00', ${batch}::uuid)`);
    if (seen === undefined) return;
    await database.db.execute(sql`insert into auth.rotation_batches values (${batch}::uuid, ${at(-seen)})`);
  }
  async function ids(column: string, table: string): Promise<string[]> {
    const found = await rows<{ id: string }>(
      database.db,
      sql`select ${sql.identifier(column)}::text as id from auth.${sql.identifier(table)} order by 1`,
    );
    return found.map(({ id }) => id);
  }
  const deleteIdentity = (id: string) =>
    database.db.transaction((tx) => endIdentity(tx, id, "IDENTITY_DELETED"));
  async function reasons(): Promise<Record<string, string | null>> {
    const found = await rows<{ id: string; reason: string | null }>(
      database.db,
      sql`select id::text, revocation_reason as reason from auth.authorizations`,
    );
    return Object.fromEntries(found.map(({ id, reason }) => [id, reason]));
  }

  return {
    db: () => database.db,
    /** A further process's connections. */
    open: () => own.open(),
    round: () => cleanUp(database.db),
    sweep: () => sweepAuthorizations(database.db),
    client,
    authorization,
    replaced,
    ids,
    deleteIdentity,
    reasons,
  };
}
