/**
 * A database whose commits wait for a synchronous standby that a test can take away. A commit is not confirmed then; it
 * is visible all the same, once its wait was cancelled.
 */
import postgres from "postgres";
import { expect } from "vitest";
import type { Migrations } from "../../../src/platform/database/migrations/migrations.ts";
import { openDatabase } from "../../../src/platform/database/open.ts";
import { createTestDatabase, postgresSettings, type TestDatabase } from "../backends.ts";
import { waitFor } from "../wait-for.ts";
import { type Cluster, startCluster } from "./cluster.ts";

export interface ReplicatedDatabase {
  readonly database: TestDatabase;
  /** A superuser in it. */
  readonly admin: postgres.Sql;
  /** To be halted and resumed. */
  readonly standby: Cluster;
  /** Resolves once no commit that waits for the standby now waits any more: they are visible. */
  waitsHaveEnded(): Promise<void>;
}

/**
 * @param binaries the directory of `initdb`, `postgres` and `pg_basebackup`
 * @param migrations to be run in the database
 * @param cleanup closes what is started
 */
export async function startReplicatedDatabase(
  binaries: string,
  migrations: readonly Migrations[],
  cleanup: AsyncDisposableStack,
): Promise<ReplicatedDatabase> {
  const settings = ["fsync=off", "max_connections=80", "shared_buffers=16MB"];
  const first = await startCluster(binaries, settings);
  cleanup.defer(() => first.stop());
  const database = await createTestDatabase({ admin: new URL(first.url) });
  for (const own of migrations) {
    const opened = await openDatabase(postgresSettings(database), own);
    await opened.migrate();
    await opened.close();
  }
  const standby = await startCluster(binaries, settings, first.url);
  cleanup.defer(() => standby.stop());
  const inside = new URL(first.url);
  inside.pathname = `/${database.name}`;
  const admin = postgres(inside.href, { max: 2, onnotice: () => undefined });
  cleanup.defer(() => admin.end({ timeout: 1 }));
  await admin`alter system set synchronous_standby_names = '*'`;
  await admin`select pg_reload_conf()`;
  await waitFor(async () =>
    expect(await admin`select 1 from pg_stat_replication where sync_state = 'sync'`).toHaveLength(1),
  );
  return {
    database,
    admin,
    standby,
    async waitsHaveEnded() {
      const [found] = await admin<{ now: string }[]>`select clock_timestamp()::text as now`;
      const now = found?.now ?? "";
      await waitFor(async () =>
        expect(
          await admin`
            select 1 from pg_stat_activity
            where wait_event = 'SyncRep' and query_start < ${now}::timestamptz`,
        ).toHaveLength(0),
      );
    },
  };
}
