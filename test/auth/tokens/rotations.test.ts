/** The stamp of a batch of rotations, with which the grace window of their tokens begins. */
import { sql } from "drizzle-orm";
import postgres from "postgres";
import { describe, expect, test } from "vitest";
import { authMigrations } from "../../../src/auth/service.ts";
import { hashPart, newRefreshToken } from "../../../src/auth/tokens/refresh-token.ts";
import { createRotations } from "../../../src/auth/tokens/rotations.ts";
import { uuidv7 } from "../../../src/platform/crypto/random.ts";
import { requiredPostgresUrl } from "../../support/postgresql/server.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { createMigratedServiceDatabase } from "../../support/service-database.ts";
import { waitFor } from "../../support/wait-for.ts";

describe.runIf(backends.includes("PostgreSQL"))("the stamp of a rotation: PostgreSQL", () => {
  test("is written after a failure too, though no other rotation follows", async () => {
    const own = await createMigratedServiceDatabase("PostgreSQL", authMigrations);
    const database = await own.open();
    const { db } = database;
    if (own.settings.kind !== "postgres") throw new Error("not PostgreSQL");
    const url = requiredPostgresUrl();
    url.pathname = `/${own.settings.name}`;
    const admin = postgres(url.href, { max: 1, onnotice: () => undefined });
    const presented = newRefreshToken(uuidv7(Date.now()));
    const next = newRefreshToken(presented.authorizationId, presented.family);
    await db.execute(sql`
      insert into auth.clients (client_id, client_name, secret_hashes, authentication_methods, grant_types, scopes,
        client_settings, token_settings, registered_at)
      values ('app', 'App', '{}', '{}', '{}', '{}', '{}', '{"refreshGraceSeconds": 30}', now())`);
    await db.execute(sql`
      insert into auth.authorizations (id, client_id, identity_id, grant_type, scopes, created_at, client_generation,
        identity_generation, expires_at, refreshed_at, expiry_day, family_hash, refresh_hash)
      values (${presented.authorizationId}::uuid, 'app', 'u', 'auth', '{}', now(), 0, 0, now() + interval '1 day',
        now() + interval '1 day', current_date + 1, '\\x00',
        decode(${hashPart(presented.rotating).toString("hex")}, 'hex'))`);
    const failures: unknown[] = [];
    const rotations = createRotations(db, (error) => failures.push(error));
    const lifetimes = { accessTokenSeconds: 900, refreshTokenSeconds: 3600, refreshGraceSeconds: 30 };
    // To connect may take longer than it takes until the stamp is written.
    await admin`select 1`;
    await rotations.rotate({ presented, next, sealedPair: Buffer.from("sealed"), lifetimes });
    await admin.begin(async (tx) => {
      await tx`lock table auth.rotation_batches in access exclusive mode`;
      await waitFor(() => expect(failures).toHaveLength(1));
    });
    await waitFor(async () => {
      expect(await rows(db, sql`select id from auth.rotation_batches`)).toHaveLength(1);
    });
    await admin.end();
    await own.drop();
  }, 30_000);
});
