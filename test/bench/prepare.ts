/** What the benchmark needs before it starts: a database with authorizations, keys, and signed tokens. */
import { randomBytes } from "node:crypto";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { calculateJwkThumbprint, exportJWK } from "jose";
import postgres from "postgres";
import { createKeyStore } from "../../src/auth/keys/key-store.ts";
import { authMigrations } from "../../src/auth/service.ts";
import { createAccessTokens, newJti } from "../../src/auth/tokens/access-token.ts";
import { encodeRefreshToken, hashPart, newRefreshToken } from "../../src/auth/tokens/refresh-token.ts";
import { systemClock } from "../../src/platform/base/clock.ts";
import { uuidv7 } from "../../src/platform/crypto/random.ts";
import { openDatabase } from "../../src/platform/database/open.ts";
import { createTestDatabase, postgresSettings, type TestDatabase } from "../support/backends.ts";
import { requiredPostgresUrl } from "../support/postgresql/server.ts";
import { newSigningKey, productionEnvironment } from "../support/production-environment.ts";
import { appClient, type KeyPair, newKeyPair } from "../support/public-app.ts";

export const issuer = "http://127.0.0.1:8080/api/auth";
export const introspector = { id: "resource-server", secret: randomBytes(24).toString("base64url") };
export const publicApplication = "app";
export const application = { id: "backend", secret: randomBytes(24).toString("base64url") };

export interface Preparation {
  readonly database: TestDatabase;
  /** Environment of a server in production mode, without ports. */
  readonly env: Record<string, string>;
  readonly directory: string;
  /** File with one access token a line, all of different authorizations. */
  readonly tokens: string;
  /** File with one form body a line. */
  readonly introspections: string;
  readonly grants: string;
  /** The same that refresh authorizations of the public application, which are bound to the key. */
  readonly refreshes: string;
  readonly appKeys: KeyPair;
}

/** As many as a run refreshes on all of its connections. */
const boundCount = 320;

/** @param count authorizations, each with an identity and a token */
export async function prepare(count: number, progress: (done: number) => void): Promise<Preparation> {
  const signing = newSigningKey("bench");
  const database = await createTestDatabase();
  const { name } = database;
  const opened = await openDatabase(postgresSettings(database), authMigrations);
  await opened.migrate();
  await opened.close();

  const directory = mkdtempSync(join(tmpdir(), "gatepost-bench-"));
  const keys = await createKeyStore({ ...signing, publishedKeys: [] });
  const accessTokens = createAccessTokens({ keys, issuer, clock: systemClock, type: "at+jwt" });
  const iat = Math.floor(Date.now() / 1000);
  const ids = Array.from({ length: count }, () => uuidv7(Date.now()));
  const tokens: string[] = [];
  for (let from = 0; from < count; from += 500) {
    const some = ids.slice(from, from + 500).map((id, index) =>
      accessTokens.sign({
        iss: issuer,
        sub: `user-${from + index}`,
        aud: [application.id, "storefront"],
        exp: iat + 86_400,
        nbf: iat,
        iat,
        jti: newJti(id),
        sid: id,
        client_id: application.id,
        scope: "profile orders",
      }),
    );
    tokens.push(...(await Promise.all(some)));
    progress(tokens.length);
  }
  const admin = requiredPostgresUrl();
  admin.pathname = `/${name}`;
  const sql = postgres(admin.href, { max: 1, onnotice: () => undefined });
  await sql`
    insert into auth.identities (id, phone, created_at, updated_at)
    select 'user-' || n, '+1' || (2000000000 + n), now(), now() from generate_series(0, ${count - 1}::int) n`;
  for (let from = 0; from < count; from += 10_000) {
    await sql`
      insert into auth.authorizations (id, client_id, identity_id, grant_type, scopes, created_at,
        client_generation, identity_generation, expires_at, refreshed_at, expiry_day, family_hash, refresh_hash)
      select id::uuid, ${application.id}, 'user-' || (${from} + n - 1), 'auth', '{profile,orders}', now(), 0, 0,
        now() + interval '30 days', now() + interval '1 day', current_date + 30, sha256(id::bytea), sha256(id::bytea)
      from unnest(${ids.slice(from, from + 10_000)}::text[]) with ordinality as t (id, n)`;
  }
  const appKeys = await newKeyPair();
  const thumbprint = Buffer.from(
    await calculateJwkThumbprint(await exportJWK(appKeys.publicKey)),
    "base64url",
  );
  const bound = Array.from({ length: boundCount }, () => newRefreshToken(uuidv7(Date.now())));
  for (const [n, { authorizationId, family, rotating }] of bound.entries()) {
    await sql`
      insert into auth.authorizations (id, client_id, identity_id, grant_type, scopes, created_at, client_generation,
        identity_generation, expires_at, refreshed_at, expiry_day, family_hash, refresh_hash, key_thumbprint)
      values (${authorizationId}, ${publicApplication}, ${`user-${n % count}`}, 'authorization_code',
        '{profile,orders}', now(), 0, 0, now() + interval '30 days', now(), current_date + 30,
        ${hashPart(family)}, ${hashPart(rotating)}, ${thumbprint})`;
  }
  await sql`vacuum analyze`;
  await sql.end();

  const clients = [
    {
      clientId: application.id,
      clientSecret: application.secret,
      clientName: "App",
      grantTypes: ["auth", "refresh_token"],
      scopes: ["profile", "orders"],
      clientSettings: { audiences: ["storefront"] },
    },
    {
      clientId: introspector.id,
      clientSecret: introspector.secret,
      clientName: "Resource server",
      grantTypes: ["auth"],
      scopes: [],
      clientSettings: { mayIntrospect: true },
    },
    appClient(publicApplication, { clientSettings: { audiences: ["storefront"] } }),
  ];
  const file = (fileName: string, lines: readonly string[]) => {
    const path = join(directory, fileName);
    writeFileSync(path, `${lines.join("\n")}\n`);
    return path;
  };
  return {
    database,
    directory,
    tokens: file("tokens", tokens),
    introspections: file(
      "introspections",
      tokens.map((token) => `token=${token}`),
    ),
    grants: file(
      "grants",
      ids.map((_, index) => `grant_type=auth&auth_id=user-${index}`),
    ),
    refreshes: file(
      "refreshes",
      bound.map(
        (token) =>
          `grant_type=refresh_token&refresh_token=${encodeRefreshToken(token)}&client_id=${publicApplication}`,
      ),
    ),
    appKeys,
    env: { ...productionEnvironment({ database, clients, issuer, signing }), ...firstPartyApps },
  };
}

/** What production needs to serve clients without a secret. No message is sent. */
const firstPartyApps = {
  FIRST_PARTY_APPS: "on",
  OTP_VERIFIER: "builtin",
  OTP_SENDER: "webhook",
  OTP_REGIONS: "DE",
  OTP_WEBHOOK_URL: "http://127.0.0.1:1/sms",
  OTP_WEBHOOK_SECRET: `whsec_${randomBytes(32).toString("base64")}`,
};

/** What refreshes have made of the rows of authorizations. */
export async function refreshedRows({
  name,
}: TestDatabase): Promise<{ bytes: number; heapOnlyShare: number }> {
  const admin = requiredPostgresUrl();
  admin.pathname = `/${name}`;
  const sql = postgres(admin.href, { max: 1, onnotice: () => undefined });
  try {
    // The statistics of a backend are written when it is idle for a moment.
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    const [size] = await sql<{ bytes: number }[]>`
      select coalesce(max(pg_column_size(a.*)), 0)::int as bytes
      from auth.authorizations a join auth.replaced_tokens t on t.authorization_id = a.id`;
    const [updates] = await sql<{ share: number }[]>`
      select coalesce(sum(n_tup_hot_upd) / nullif(sum(n_tup_upd), 0), 0)::float8 as share
      from pg_stat_user_tables where schemaname = 'auth' and relname like 'authorizations%'`;
    return { bytes: size?.bytes ?? 0, heapOnlyShare: updates?.share ?? 0 };
  } finally {
    await sql.end();
  }
}
