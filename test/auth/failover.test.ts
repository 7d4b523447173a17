/** The primary is killed under load, its standby is promoted, and the old primary comes back as it was. */
import { setTimeout } from "node:timers/promises";
import postgres from "postgres";
import { beforeAll, describe, expect, test } from "vitest";
import { authMigrations } from "../../src/auth/service.ts";
import { openDatabase } from "../../src/platform/database/open.ts";
import { type AuthApi, authApi, internal, mobileApp } from "../support/auth-api.ts";
import { type AuthServer, startAuthServer } from "../support/auth-server.ts";
import { createTestDatabase, postgresSettings } from "../support/backends.ts";
import { readContract } from "../support/contract-check.ts";
import { findPostgresql } from "../support/postgresql/binaries.ts";
import { type Cluster, startCluster } from "../support/postgresql/cluster.ts";
import { databaseEnvironment } from "../support/servers.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { waitFor } from "../support/wait-for.ts";

const binaries = findPostgresql(["initdb", "postgres", "pg_basebackup"]);

describe.runIf(binaries)("a primary with a synchronous standby, both in DB_HOST: PostgreSQL", () => {
  const settings = ["fsync=off", "max_connections=40", "shared_buffers=16MB"];
  let first: Cluster;
  let second: Cluster;
  let server: AuthServer;
  let api: AuthApi;
  let connect: (cluster: Cluster) => postgres.Sql;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    first = await startCluster(binaries ?? "", settings);
    cleanup.defer(() => first.stop());
    const database = await createTestDatabase({ admin: new URL(first.url) });
    second = await startCluster(binaries ?? "", settings, first.url);
    cleanup.defer(() => second.stop());
    connect = ({ url }) => {
      const inside = new URL(url);
      inside.pathname = `/${database.name}`;
      const sql = postgres(inside.href, { max: 1, onnotice: () => undefined });
      cleanup.defer(() => sql.end({ timeout: 1 }));
      return sql;
    };
    // The standby comes first, and is passed over.
    const hosts = [second, first].map(({ url }) => new URL(url));
    const addresses = hosts.map(({ hostname, port }) => ({ host: hostname, port: Number(port) }));
    const opened = await openDatabase(
      { ...postgresSettings(database), hosts: addresses, migrationHosts: addresses },
      authMigrations,
    );
    await opened.migrate();
    await opened.close();
    await waitsForStandby(connect(first));
    const env = { ...databaseEnvironment(database), DB_HOST: hosts.map(({ host }) => host).join(",") };
    server = await startAuthServer("PostgreSQL", { env });
    cleanup.defer(() => server.stop());
    api = authApi(server.base, readContract("auth"));
  });

  /** Commits wait for the standby from now on. */
  async function waitsForStandby(primary: postgres.Sql): Promise<void> {
    await primary`alter system set synchronous_standby_names = '*'`;
    await primary`select pg_reload_conf()`;
    await waitFor(async () =>
      expect(await primary`select 1 from pg_stat_replication where sync_state = 'sync'`).toHaveLength(1),
    );
  }

  /** Ends the server's connections. @returns a row for each */
  const terminate = (sql: postgres.Sql) =>
    sql`select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'gatepost'`;

  const isReady = async () => (await fetch(`${server.management}/health/ready`)).status === 200;

  function signIn(id: string): Promise<Response> {
    return fetch(`${server.base}/oauth2/v1/tokens`, {
      method: "POST",
      headers: { authorization: mobileApp },
      body: new URLSearchParams({ grant_type: "auth", auth_id: id }),
    });
  }

  async function isActive(token: string): Promise<boolean> {
    const response = await fetch(`${server.base}/oauth2/v1/introspect`, {
      method: "POST",
      headers: { authorization: internal },
      body: new URLSearchParams({ token }),
    });
    expect(response.status).toBe(200);
    return (await response.text()).includes('"active":true');
  }

  /** Signs in again and again until it is stopped. */
  function load(id: string): () => Promise<{ acknowledged: string[]; refused: Set<string> }> {
    const acknowledged: string[] = [];
    const refused = new Set<string>();
    let isOn = true;
    async function person(): Promise<void> {
      while (isOn) {
        const response = await signIn(id);
        const body = await response.text();
        if (response.status === 200) acknowledged.push(JSON.parse(body).access_token);
        else refused.add(`${response.status} ${response.headers.has("retry-after") ? "Retry-After" : ""}`);
        await setTimeout(20);
      }
    }
    const people = [person(), person(), person()];
    return async () => {
      isOn = false;
      await Promise.all(people);
      return { acknowledged, refused };
    };
  }

  const authorizations = async (sql: postgres.Sql) =>
    (await sql<{ n: number }[]>`select count(*)::int as n from auth.authorizations`)[0]?.n;

  test("nothing acknowledged is lost, the server goes on, and the old primary is not written to", async () => {
    const { id } = await api.newIdentity();
    const [old, promoted] = [connect(first), connect(second)];
    const stop = load(id);
    await waitFor(async () => expect(await authorizations(old)).toBeGreaterThan(10));
    await first.halt("kill");
    await waitFor(async () => expect(await isReady()).toBe(false));
    await promoted`select pg_promote()`;
    await waitFor(async () => expect((await signIn(id)).status).toBe(200));
    await waitFor(async () => expect(await isReady()).toBe(true));
    const { acknowledged, refused } = await stop();
    expect([...refused]).toEqual(["503 Retry-After"]);
    expect(await authorizations(promoted)).toBeGreaterThanOrEqual(acknowledged.length);
    for (const token of acknowledged) expect(await isActive(token)).toBe(true);

    // It takes itself for the primary, and no commit waits there for anybody.
    await first.resume();
    await waitFor(() => old`alter system set synchronous_standby_names = ''`);
    await old`select pg_reload_conf()`;
    await old`create table public.proof_that_it_takes_writes ()`;
    const before = await authorizations(old);
    await terminate(promoted);
    await waitFor(async () => expect((await signIn(id)).status).toBe(200));
    expect(server.logs()).toContain("A host takes writes on an old timeline, and is not used");
    await second.halt("fast");
    await waitFor(async () => expect(await isReady()).toBe(false));
    expect((await signIn(id)).status).toBe(503);
    await second.resume();
    await waitFor(async () => expect((await signIn(id)).status).toBe(200));
    expect(await authorizations(old)).toBe(before);
    await waitFor(async () => expect(await terminate(old)).toEqual([]));
  }, 120_000);

  test("a primary that goes on beside its successor is left as soon as nobody confirms a commit", async () => {
    const { id } = await api.newIdentity();
    // What was the old primary is made a standby anew, at the same address.
    const { port } = new URL(first.url);
    await first.stop();
    first = await startCluster(binaries ?? "", settings, second.url, { port: Number(port) });
    const [abandoned, promoted] = [connect(second), connect(first)];
    await waitsForStandby(abandoned);
    const { access_token: before } = await api.newPair(id, mobileApp);
    await promoted`select pg_promote()`;
    const { access_token: after } = await waitFor(() => api.newPair(id, mobileApp));
    for (const token of [before, after]) expect(await isActive(token)).toBe(true);
    await waitFor(async () =>
      expect(
        await abandoned`
          select from pg_stat_activity
          where application_name = 'gatepost' and wait_event is distinct from 'SyncRep'`,
      ).toEqual([]),
    );
    const found = server
      .logs()
      .split("\n")
      .filter((line) => line.includes("The primary of the database was found"));
    expect(found.map((line) => JSON.parse(line).timeline)).toEqual([1, 2, 3]);
  }, 120_000);
});
