/** Two processes start on an empty database at once: each hashes the clients' secrets itself. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { authMigrations } from "../../src/auth/service.ts";
import { openDatabase } from "../../src/platform/database/open.ts";
import { authApi, basic, mobileApp } from "../support/auth-api.ts";
import { spawnAuthServer } from "../support/auth-server.ts";
import { createAuthStore } from "../support/auth-store.ts";
import { postgresSettings } from "../support/backends.ts";
import { backends } from "../support/servers.ts";
import { waitFor } from "../support/wait-for.ts";

test.runIf(backends.includes("PostgreSQL"))(
  "guessing at a client locks it out at neither of them",
  async () => {
    const store = await createAuthStore("PostgreSQL");
    const env = (name: string) => store.env[name] ?? "";
    const database = await openDatabase(
      postgresSettings({
        host: env("DB_HOST"),
        port: Number(env("DB_PORT")),
        name: env("DB_NAME"),
        user: env("DB_USER"),
        password: env("DB_PASSWORD"),
        migrationUser: env("DB_USER_MIGRATION"),
        migrationPassword: env("DB_PASSWORD_MIGRATION"),
      }),
      authMigrations,
    );
    await database.migrate();
    await database.close();

    // Both find no list of clients yet; neither stores one before both have made their hashes.
    const directories = [0, 1].map(() => mkdtempSync(join(tmpdir(), "gatepost-test-")));
    const [first, second] = await store.read(async (query) => {
      await query("begin");
      await query("lock table auth.client_lists in exclusive mode");
      const starting = Promise.all(
        directories.map((DATA_DIR) => spawnAuthServer("PostgreSQL", { env: { ...store.env, DATA_DIR } })),
      );
      const waiting = () =>
        query(`select 1 from pg_locks where not granted and relation = 'auth.client_lists'::regclass
          and database = (select oid from pg_database where datname = current_database())`);
      await waitFor(async () => expect(await waiting()).toHaveLength(2));
      await query("commit");
      return starting;
    });
    const servers = [first ?? expect.fail("not started"), second ?? expect.fail("not started")];
    const apis = servers.map(({ base }) => authApi(base));
    const [api = expect.fail("not started")] = apis;
    const { id } = await api.newIdentity();
    for (const one of apis) {
      const wrong = await Promise.all(
        Array.from({ length: 25 }, (_, n) =>
          one.token({ grant_type: "auth", auth_id: id }, basic("backend", `guess ${n}`)),
        ),
      );
      expect(wrong.filter(({ status }) => status < 400)).toEqual([]);
    }
    for (const one of [...apis, ...apis]) await one.newPair(id, mobileApp);
    await Promise.all(servers.map((server) => server.stop()));
    await store.drop();
    for (const directory of directories) rmSync(directory, { recursive: true, force: true });
  },
);
