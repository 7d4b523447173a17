/** Reuse is decided by the primary, in the statement that ends the authorization: what was read before may be stale. */
import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/postgres-js";
import postgres from "postgres";
import { beforeAll, describe, expect, test } from "vitest";
import { authMigrations } from "../../../src/auth/service.ts";
import { endAuthorization } from "../../../src/auth/tokens/end-authorizations.ts";
import { createAuthorizationRepository } from "../../../src/auth/tokens/introspect.ts";
import { createFindPresented, isReuse } from "../../../src/auth/tokens/presented-token.ts";
import {
  hashPart,
  newRefreshToken,
  type RefreshToken,
  seal,
} from "../../../src/auth/tokens/refresh-token.ts";
import { createRotations } from "../../../src/auth/tokens/rotations.ts";
import { ErrorKinds, ServiceError } from "../../../src/platform/base/errors.ts";
import { uuidv7 } from "../../../src/platform/crypto/random.ts";
import type { Database } from "../../../src/platform/database/database.ts";
import { noRequest } from "../../../src/platform/messaging/outbox.ts";
import { postgresSettings } from "../../support/backends.ts";
import { findPostgresql } from "../../support/postgresql/binaries.ts";
import { type Cluster, startCluster } from "../../support/postgresql/cluster.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { createMigratedServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

const graceSeconds = 30;

/** An authorization with its first refresh token. */
async function newToken(db: Database): Promise<RefreshToken> {
  const token = newRefreshToken(uuidv7(Date.now()));
  await db.execute(sql`
    insert into auth.clients (client_id, client_name, secret_hashes, authentication_methods, grant_types, scopes,
      client_settings, token_settings, registered_at)
    values ('app', 'App', '{}', '{}', '{}', '{}', '{}', ${JSON.stringify({ refreshGraceSeconds: graceSeconds })}::text::jsonb, now())
    on conflict do nothing`);
  await db.execute(sql`
    insert into auth.authorizations (id, client_id, identity_id, grant_type, scopes, created_at, client_generation,
      identity_generation, expires_at, refreshed_at, expiry_day, family_hash, refresh_hash)
    values (${token.authorizationId}::uuid, 'app', 'u', 'auth', '{profile}', now(), 0, 0, now() + interval '1 day',
      now() + interval '1 day', current_date + 1, decode(${hashPart(token.family).toString("hex")}, 'hex'),
      decode(${hashPart(token.rotating).toString("hex")}, 'hex'))`);
  return token;
}

describe.each(backends)("what another has found to be reuse, on %s", (backend) => {
  let db: Database;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const own = await createMigratedServiceDatabase(backend, authMigrations);
    cleanup.defer(() => own.drop());
    const database = await own.open();
    db = database.db;
  });

  async function rotate(presented: RefreshToken): Promise<RefreshToken> {
    const rotations = createRotations(db, (error) => expect.fail(String(error)));
    const next = newRefreshToken(presented.authorizationId, presented.family);
    const sealedPair = seal(presented.rotating, "the pair");
    const lifetimes = {
      accessTokenSeconds: 900,
      refreshTokenSeconds: 3600,
      refreshGraceSeconds: graceSeconds,
    };
    expect(await rotations.rotate({ presented, next, sealedPair, lifetimes })).toBe(true);
    await rotations.stop();
    return next;
  }

  async function reasonAfterReuseOf(token: RefreshToken): Promise<unknown> {
    await endAuthorization(db, token.authorizationId, "REUSE", noRequest, isReuse(token));
    const statement = sql`
      select revocation_reason as reason from auth.authorizations where id = ${token.authorizationId}::uuid`;
    return (await rows(db, statement))[0]?.["reason"];
  }

  test("ends nothing while the token is the current one, or a retry may have its pair", async () => {
    const token = await newToken(db);
    expect(await reasonAfterReuseOf(token)).toBeNull();
    await rotate(token);
    expect(await reasonAfterReuseOf(token)).toBeNull();
  });

  test("ends the authorization once the successor was presented, or the window has closed", async () => {
    const early = await newToken(db);
    await rotate(await rotate(early));
    expect(await reasonAfterReuseOf(early)).toBe("REUSE");
    const late = await newToken(db);
    await rotate(late);
    await db.execute(sql`update auth.rotation_batches set seen_at = seen_at - interval '31 seconds'`);
    expect(await reasonAfterReuseOf(late)).toBe("REUSE");
  });
});

const binaries = findPostgresql(["initdb", "postgres", "pg_basebackup"]);

describe.runIf(binaries !== undefined)("a standby that a pooler has put in the primary's place", () => {
  let standby: Cluster;
  let token: RefreshToken;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const primary = await startCluster(binaries ?? "", ["fsync=off"]);
    cleanup.defer(() => primary.stop());
    standby = await startCluster(binaries ?? "", ["fsync=off"], primary.url);
    cleanup.defer(() => standby.stop());
    const { openPostgresql } = await import("../../../src/platform/database/postgresql.ts");
    const [user, password] = ["postgres", ""];
    const settings = postgresSettings({
      ...{ host: "127.0.0.1", port: Number(new URL(primary.url).port), name: "postgres", user, password },
      ...{ migrationUser: user, migrationPassword: password },
    });
    const quiet = { lane() {}, waited() {}, connectFailed() {} };
    const database = openPostgresql(settings, authMigrations, quiet);
    cleanup.defer(() => database.close());
    await database.migrate();
    token = await newToken(database.db);
  });

  test("is not believed, neither on refresh tokens nor on access tokens", async () => {
    // Without the check of a connection: behind a pooler the server changes after it.
    const client = postgres(standby.url, { max: 1, fetch_types: false });
    cleanup.defer(() => client.end());
    const reads: Database = drizzle({ client });
    await waitFor(async () => {
      expect(await rows(reads, sql`select id from auth.authorizations`)).toHaveLength(1);
    });
    const find = createFindPresented(reads);
    const { isActive } = createAuthorizationRepository(reads);
    const stranger = newRefreshToken(uuidv7(Date.now()));
    for (const ask of [
      () => find(token),
      () => find(stranger),
      () => isActive(`${token.authorizationId}.x`),
    ]) {
      const error = await ask().then(
        () => undefined,
        (reason: unknown) => reason,
      );
      expect(error).toBeInstanceOf(ServiceError);
      expect(error).toMatchObject({ kind: ErrorKinds.unavailable });
    }
  });
});
