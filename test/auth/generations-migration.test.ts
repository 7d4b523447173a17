/** The migration to generations and partitions keeps what the authorizations of before have and can do. */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { authMigrations } from "../../src/auth/service.ts";
import { createFindPresented } from "../../src/auth/tokens/presented-token.ts";
import { hashPart, newRefreshToken, seal, unseal } from "../../src/auth/tokens/refresh-token.ts";
import { openDatabase } from "../../src/platform/database/open.ts";
import { rows } from "../support/rows.ts";
import { backends } from "../support/servers.ts";
import { createServiceDatabase } from "../support/service-database.ts";

/** The history up to its first entry, in a folder of its own. */
function firstOnly(): string {
  const folder = mkdtempSync(join(tmpdir(), "gatepost-history-"));
  cpSync(authMigrations.folder, folder, { recursive: true });
  const file = join(folder, "meta/_journal.json");
  const journal = JSON.parse(readFileSync(file, "utf8"));
  writeFileSync(file, JSON.stringify({ ...journal, entries: journal.entries.slice(0, 1) }));
  return folder;
}

describe.each(backends)("authorizations of before, on %s", (backend) => {
  test("are there, with the pair that is kept for a retry, and end as before", async () => {
    const own = await createServiceDatabase(backend, authMigrations);
    const folder = firstOnly();
    const before = await openDatabase(own.settings, {
      ...authMigrations,
      folder: pathToFileURL(folder),
    });
    await before.migrate();
    const ids = ["019a9f6e-5c1d-7b3a-9f00-3f2a51d0c111", "019a9f6e-5c1d-7b3a-9f00-3f2a51d0c222"] as const;
    const [token, second] = ids.map((id) => newRefreshToken(id));
    if (!token || !second) throw new Error("no tokens");
    const next = newRefreshToken(token.authorizationId, token.family);
    const sealed = seal(token.rotating, "the pair").toString("base64url");
    const superseded = [{ hash: hashPart(token.rotating).toString("base64url"), at: Date.now(), sealed }];
    await before.db.execute(sql`
      insert into auth.clients (client_id, client_name, secret_hash, authentication_methods, grant_types, scopes,
        client_settings, token_settings, registered_at)
      values ('app', 'App', 'hash', '{}', '{}', '{}', '{}', '{"refreshGraceSeconds": 30}', now())`);
    for (const [id, family, current, kept] of [
      [token.authorizationId, token.family, next.rotating, superseded],
      [second.authorizationId, second.family, second.rotating, []],
    ] as const) {
      await before.db.execute(sql`
        insert into auth.authorizations (id, client_id, identity_id, grant_type, scopes, created_at, expires_at,
          access_expires_at, family_hash, refresh_hash, superseded)
        values (${id}::uuid, 'app', 'u', 'auth', '{profile}', now(), now() + interval '1 day', now(),
          decode(${hashPart(family).toString("hex")}, 'hex'), decode(${hashPart(current).toString("hex")}, 'hex'),
          ${JSON.stringify(kept)}::text::jsonb)`);
    }
    await before.close();

    const after = await own.open();
    await after.migrate();
    const find = createFindPresented(after.db);
    const replaced = await find(token);
    expect(replaced).toMatchObject({
      clientId: "app",
      scopes: ["profile"],
      state: "ACTIVE",
      isCurrent: false,
    });
    expect(unseal(token.rotating, replaced?.sealedPair ?? Buffer.alloc(0))).toBe("the pair");
    for (const current of [next, second]) {
      expect(await find(current)).toMatchObject({ state: "ACTIVE", isCurrent: true });
    }
    const partitions = sql`select distinct tableoid::regclass from auth.authorizations`;
    expect((await rows(after.db, partitions)).length).toBeGreaterThan(0);
    expect(await rows(after.db, sql`select secret_hashes from auth.clients`)).toHaveLength(1);
    await own.drop();
    rmSync(folder, { recursive: true });
  });
});
