/** Introspection from a standby where clocks are an hour off: no wrong time of day lengthens what a process relies on. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import postgres from "postgres";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { authMigrations } from "../../src/auth/service.ts";
import { type AuthApi, authApi, mobileApp } from "../support/auth-api.ts";
import { spawnAuthServer, startAuthServer } from "../support/auth-server.ts";
import { createTestDatabase } from "../support/backends.ts";
import { migrate } from "../support/migrated-database.ts";
import { findPostgresql } from "../support/postgresql/binaries.ts";
import { type Cluster, startCluster } from "../support/postgresql/cluster.ts";
import { commitsWaitFor, hasCaughtUp, isReadBy, startStandby, until } from "../support/postgresql/standby.ts";
import { databaseEnvironment } from "../support/servers.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { clockOf, findFaketime } from "../support/wrong-clock.ts";

const programs = findPostgresql(["initdb", "postgres", "pg_basebackup"]);
const settings = ["fsync=off", "max_connections=40", "shared_buffers=16MB"];
const hour = 3_600;

describe.runIf(programs && findFaketime())("clocks of standbys that differ", () => {
  let primary: Cluster;
  let admin: postgres.Sql;
  let env: Record<string, string>;
  /** A process whose clock is right, and which reads from no standby. */
  let api: AuthApi;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    primary = await startCluster(programs ?? "", settings);
    cleanup.defer(() => primary.stop());
    const database = await createTestDatabase({ admin: new URL(primary.url) });
    await migrate(database, authMigrations);
    admin = postgres(primary.url, { max: 1, onnotice: () => undefined });
    cleanup.defer(() => admin.end({ timeout: 1 }));
    const dataDir = mkdtempSync(join(tmpdir(), "gatepost-test-"));
    cleanup.defer(() => rmSync(dataDir, { recursive: true, force: true }));
    // Keys and issuer are those of every process here.
    const ofDeployment = { DATA_DIR: dataDir, OAUTH_SERVER_ISSUER: "http://127.0.0.1/api/auth" };
    env = { ...databaseEnvironment(database), ...ofDeployment };
    const server = await startAuthServer("PostgreSQL", { env });
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
  });

  test.each([
    ["ahead", "behind"],
    ["behind", "ahead"],
  ] as const)(
    "a standby that is %s and a process that is %s are as strict, also where the standby does not replay and is promoted",
    async (ofStandby, ofProcess) => {
      const offsets = { ahead: "+1h", behind: "-1h" };
      const standby = await startStandby(programs ?? "", settings, primary.url, `standby_${ofStandby}`, {
        env: clockOf(offsets[ofStandby]),
      });
      onTestFinished(() => standby.stop());
      const own = postgres(standby.url, { max: 1, onnotice: () => undefined });
      onTestFinished(() => own.end({ timeout: 1 }));
      const [clock] = await own<
        { seconds: number }[]
      >`select extract(epoch from clock_timestamp())::float8 as seconds`;
      expect(Math.abs(Number(clock?.seconds) - Date.now() / 1_000)).toBeGreaterThan(hour * 0.9);
      const address = new URL(standby.url).host;
      const reader = await spawnAuthServer("PostgreSQL", {
        env: { ...env, ...clockOf(offsets[ofProcess]), DB_READ_HOSTS: address },
      });
      onTestFinished(() => reader.stop());
      const readerApi = authApi(reader.base);
      const isActive = async (token: string) => (await readerApi.introspect(token)).active;
      const newToken = async () => (await api.newPair((await api.newIdentity()).id, mobileApp)).access_token;
      const isRead = () => until("the process reads from it", () => isReadBy(reader, address));
      /**
       * Each is looked at before its end and as soon as that is acknowledged: by the process that asks the standby, or by
       * the one that only waits for leases to run out.
       */
      async function endAll(tokens: readonly string[]): Promise<void> {
        for (const token of tokens) expect(await isActive(token)).toBe(true);
        await Promise.all(
          tokens.map(async (token, index) => {
            expect(
              (
                await (index % 2 === 0 ? readerApi : api).call("revokeToken", {
                  as: mobileApp,
                  form: { token },
                })
              ).status,
            ).toBe(200);
            expect(await isActive(token)).toBe(false);
          }),
        );
      }

      await isRead();
      expect(reader.logs()).toContain("The clocks of this process and of the database differ");
      const tokens = await Promise.all(Array.from({ length: 31 }, newToken));
      const kept = tokens.pop() ?? "";
      // Commits wait for nobody, then for the standby, then for nobody while it does not replay.
      await endAll(tokens.splice(0, 10));
      onTestFinished(() => commitsWaitFor(admin, []));
      await commitsWaitFor(admin, [`standby_${ofStandby}`]);
      await isRead();
      await endAll(tokens.splice(0, 10));
      await commitsWaitFor(admin, []);
      await hasCaughtUp(admin, own);
      await own`select pg_wal_replay_pause()`;
      await endAll(tokens.splice(0, 5));
      await until("the process reads from it no more", () => !isReadBy(reader, address));
      await own`select pg_wal_replay_resume()`;
      await isRead();
      await Promise.all([own`select pg_promote()`, endAll(tokens)]);
      expect(await isActive(kept)).toBe(true);
    },
    240_000,
  );
});
