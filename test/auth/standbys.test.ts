/** Introspection from a standby: as strict as from the primary, in whatever state the standby is. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import postgres from "postgres";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { authMigrations } from "../../src/auth/service.ts";
import { type AuthApi, authApi, internal, mobileApp } from "../support/auth-api.ts";
import { type AuthServer, startAuthServer } from "../support/auth-server.ts";
import { createTestDatabase } from "../support/backends.ts";
import { readContract } from "../support/contract-check.ts";
import { migrate } from "../support/migrated-database.ts";
import { findPostgresql } from "../support/postgresql/binaries.ts";
import { type Cluster, type ClusterPlace, startCluster } from "../support/postgresql/cluster.ts";
import { databaseEnvironment } from "../support/servers.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { waitFor } from "../support/wait-for.ts";

/** One connection of a superuser. */
function openPostgres(url: string) {
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  return { of: sql, [Symbol.asyncDispose]: () => sql.end({ timeout: 1 }) };
}

const binaries = findPostgresql(["initdb", "postgres", "pg_basebackup"]);

describe.runIf(binaries)("a primary with a synchronous standby: PostgreSQL", () => {
  const settings = ["fsync=off", "max_connections=40", "shared_buffers=16MB"];
  let first: Cluster;
  let primary: postgres.Sql;
  let standby: postgres.Sql;
  let second: Cluster;
  let server: AuthServer;
  let api: AuthApi;
  let env: Record<string, string>;
  let primaryHost: string;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    first = await startCluster(binaries ?? "", settings);
    cleanup.defer(() => first.stop());
    const database = await createTestDatabase({ admin: new URL(first.url) });
    await migrate(database, authMigrations);
    second = await startCluster(binaries ?? "", [...settings, "restart_after_crash=off"], first.url);
    cleanup.defer(() => second.stop());
    const connect = (url: string) => {
      const inside = new URL(url);
      inside.pathname = `/${database.name}`;
      const sql = postgres(inside.href, { max: 1, onnotice: () => undefined });
      cleanup.defer(() => sql.end({ timeout: 1 }));
      return sql;
    };
    primary = connect(first.url);
    standby = connect(second.url);
    await waitFor(async () =>
      expect(await primary`select 1 from pg_stat_replication where state = 'streaming'`).toHaveLength(1),
    );
    await waitForStandby(true);
    const dataDir = mkdtempSync(join(tmpdir(), "gatepost-test-"));
    cleanup.defer(() => rmSync(dataDir, { recursive: true, force: true }));
    // Keys and issuer are those of every server here.
    const ofDeployment = { DATA_DIR: dataDir, OAUTH_SERVER_ISSUER: "http://127.0.0.1/api/auth" };
    env = { ...databaseEnvironment(database), ...ofDeployment };
    primaryHost = new URL(first.url).host;
    server = await startAuthServer("PostgreSQL", {
      env: { ...env, DB_READ_HOSTS: new URL(second.url).host },
    });
    cleanup.defer(() => server.stop());
    api = authApi(server.base, readContract("auth"));
  });

  /** Whether commits wait for the standby. */
  async function waitForStandby(isWaitedFor: boolean): Promise<void> {
    await primary.unsafe(`alter system set synchronous_standby_names = '${isWaitedFor ? "*" : ""}'`);
    await primary`select pg_reload_conf()`;
    await waitFor(async () => {
      const [row] = await primary`select current_setting('synchronous_standby_names') as names`;
      expect(row?.["names"]).toBe(isWaitedFor ? "*" : "");
    });
  }

  /** Holds back what the standby applies while something is done, also where that fails. */
  async function whileReplayIsPaused(work: () => Promise<void>): Promise<void> {
    await standby`select pg_wal_replay_pause()`;
    try {
      await work();
    } finally {
      await standby`select pg_wal_replay_resume()`;
    }
  }

  /** A standby that this suite's process does not read from. @param source a superuser's URL of its primary */
  async function startOther(source: string, place: ClusterPlace = {}): Promise<Cluster> {
    const cluster = await startCluster(
      binaries ?? "",
      [...settings, "restart_after_crash=off"],
      source,
      place,
    );
    onTestFinished(() => cluster.stop());
    return cluster;
  }

  /** Ends ten tokens, and looks at each at once at a process that reads from other standbys. */
  async function expectStrict(other: { readonly base: string }): Promise<void> {
    async function end(): Promise<void> {
      const token = await newToken();
      expect(await isActive(token, other)).toBe(true);
      expect(await revoke(token)).toBe(200);
      expect(await isActive(token, other)).toBe(false);
    }
    // At once, as each waits for the leases of standbys that the first process does not ask.
    await Promise.all(Array.from({ length: 10 }, end));
  }

  const lastRead = ({ logs }: Pick<AuthServer, "logs"> = server) =>
    logs().lastIndexOf("Introspection reads from a standby");
  const lastStopped = ({ logs }: Pick<AuthServer, "logs"> = server) =>
    logs().lastIndexOf("Introspection does not read from a standby");
  const isRead = (one: Pick<AuthServer, "logs"> = server) =>
    waitFor(() => expect(lastRead(one)).toBeGreaterThan(lastStopped(one)));

  async function newToken(): Promise<string> {
    return (await api.newPair((await api.newIdentity()).id, mobileApp)).access_token;
  }

  async function isActive(token: string, { base }: { readonly base: string } = server): Promise<boolean> {
    const { status, body } = await post("introspect", internal, token, base);
    expect(status).toBe(200);
    return body.includes('"active":true');
  }

  async function post(operation: string, authorization: string, token: string, base = server.base) {
    const response = await fetch(`${base}/oauth2/v1/${operation}`, {
      method: "POST",
      headers: { authorization },
      body: new URLSearchParams({ token }),
    });
    return { status: response.status, body: await response.text() };
  }

  const revoke = async (token: string) => (await post("revoke", mobileApp, token)).status;

  test("a token is inactive everywhere once its revocation is answered, and its end is at the standby", async () => {
    await isRead();
    for (let round = 0; round < 20; round += 1) {
      const token = await newToken();
      expect(await isActive(token)).toBe(true);
      expect(await revoke(token)).toBe(200);
      const [row] = await standby`select count(*)::int as n from auth.revoked_access_tokens`;
      expect(row?.["n"]).toBe(round + 1);
      expect(await isActive(token)).toBe(false);
    }
    await isRead();
  });

  test("while commits wait for a standby that does not apply, a revocation is refused, and so is its retry", async () => {
    const token = await newToken();
    await whileReplayIsPaused(async () => {
      expect(await revoke(token)).toBe(503);
      expect(await revoke(token)).toBe(503);
    });
    await waitFor(async () => expect(await revoke(token)).toBe(200));
    expect(await isActive(token)).toBe(false);
    await isRead();
  });

  test("a revocation whose standby is gone is refused, and its commit waits no longer than its caller", async () => {
    const token = await newToken();
    // Other commits may wait as well: the server goes on writing its leases.
    const waiting = () => primary`
      select 1 from pg_stat_activity where wait_event = 'SyncRep' and query like '%revoked_access_tokens%'`;
    await second.halt("fast");
    try {
      const revoked = revoke(token);
      await waitFor(async () => expect(await waiting()).toHaveLength(1));
      expect(await revoked).toBe(503);
      await waitFor(async () => expect(await waiting()).toHaveLength(0));
      // It is committed here, and there it is not. It is seen a moment after its wait has ended.
      await waitFor(async () => expect(await isActive(token)).toBe(false));
      expect(await revoke(token)).toBe(503);
    } finally {
      await second.resume();
    }
    await waitFor(async () => expect(await revoke(token)).toBe(200));
    expect(await isActive(token)).toBe(false);
    await isRead();
  });

  test("a standby that has stopped to apply, and that nobody waits for, is not believed", async () => {
    const [kept, token] = [await newToken(), await newToken()];
    await isRead();
    await waitForStandby(false);
    await whileReplayIsPaused(async () => {
      expect(await revoke(token)).toBe(200);
      expect(await isActive(token)).toBe(false);
      expect(await isActive(kept)).toBe(true);
      expect(await isActive(await newToken())).toBe(true);
    });
    await isRead();
  });

  test("a process that reads from no standby answers once those that do cannot say active", async () => {
    const other = await startAuthServer("PostgreSQL", { env });
    try {
      await isRead();
      const tokens = await Promise.all(Array.from({ length: 5 }, newToken));
      await waitForStandby(false);
      // The standby has the tokens when it stops to apply.
      await waitFor(async () => {
        const [row] = await standby`select count(*)::int as n from auth.authorizations`;
        const [own] = await primary`select count(*)::int as n from auth.authorizations`;
        expect(row?.["n"]).toBe(own?.["n"]);
      });
      await whileReplayIsPaused(async () => {
        for (const token of tokens) {
          expect((await post("revoke", mobileApp, token, other.base)).status).toBe(200);
          expect(await isActive(token)).toBe(false);
        }
      });
      await isRead();
    } finally {
      await other.stop();
    }
  });

  test("who learns of an ending by its event is told of it by the standby", async () => {
    await isRead();
    const token = await newToken();
    // Nobody waits for the standby, and it has the token when it stops to apply.
    await waitFor(async () => {
      const [row] = await standby`select count(*)::int as n from auth.authorizations`;
      const [own] = await primary`select count(*)::int as n from auth.authorizations`;
      expect(row?.["n"]).toBe(own?.["n"]);
    });
    const { jti } = JSON.parse(Buffer.from(token.split(".")[1] ?? "", "base64url").toString());
    const event = () =>
      server
        .logs()
        .split("\n")
        .some((line) => line.includes("auth.token.revoked.v1") && line.includes(jti));
    await whileReplayIsPaused(async () => {
      const revoked = revoke(token);
      await waitFor(() => expect(event()).toBe(true), 5);
      expect(await isActive(token)).toBe(false);
      expect(await revoked).toBe(200);
    });
    await isRead();
  });

  test("a host that never can be read from is named in the log, with the reason", async () => {
    const other = await startAuthServer("PostgreSQL", { env: { ...env, DB_READ_HOSTS: primaryHost } });
    try {
      const line = "Introspection does not read from a standby";
      await waitFor(() => expect(other.logs()).toContain(line), 20);
      expect(
        other
          .logs()
          .split("\n")
          .find((entry) => entry.includes(line)),
      ).toContain("it is no standby");
    } finally {
      await other.stop();
    }
  });

  test("a standby of another cluster is not believed, also where that was made of this one, and the log says why", async () => {
    // It has all tokens there are, as active, and lives on by itself.
    const [kept, token] = [await newToken(), await newToken()];
    const foreign = await startCluster(binaries ?? "", settings, first.url);
    onTestFinished(() => foreign.stop());
    await using sql = openPostgres(foreign.url);
    await sql.of`select pg_promote()`;
    const [stranger, own] = [await startOther(foreign.url), second].map(({ url }) => new URL(url).host);
    const other = await startAuthServer("PostgreSQL", {
      env: { ...env, DB_READ_HOSTS: `${stranger},${own}` },
    });
    onTestFinished(() => other.stop());
    const lines = (message: string) =>
      other
        .logs()
        .split("\n")
        .filter((line) => line.includes(`"${message}"`));
    expect(await revoke(token)).toBe(200);
    await waitFor(() => expect(lines("Introspection reads from a standby")).toHaveLength(1), 20);
    for (let round = 0; round < 10; round += 1) {
      expect(await isActive(token, other)).toBe(false);
      expect(await isActive(kept, other)).toBe(true);
    }
    await expectStrict(other);
    await waitFor(() => expect(lines("Introspection does not read from a standby")).toHaveLength(1), 20);
    expect(lines("Introspection does not read from a standby")[0]).toContain("it follows another primary");
    expect(lines("Introspection does not read from a standby")[0]).toContain(stranger);
    expect(lines("Introspection reads from a standby")[0]).toContain(own);
  });

  test("a standby that has been promoted is not believed", async () => {
    const [kept, token] = [await newToken(), await newToken()];
    await isRead();
    await standby`select pg_promote()`;
    expect(await revoke(token)).toBe(200);
    expect(await isActive(token)).toBe(false);
    expect(await isActive(kept)).toBe(true);
    const [row] = await standby`select count(*)::int as n from auth.revoked_access_tokens`;
    const [own] = await primary`select count(*)::int as n from auth.revoked_access_tokens`;
    expect(row?.["n"]).toBeLessThan(own?.["n"]);
  });
});
