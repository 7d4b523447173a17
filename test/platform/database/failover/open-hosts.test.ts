/** What servers say of themselves after a promotion, and which of them is used while one of them cannot say it. */
import postgres from "postgres";
import { beforeAll, describe, expect, test } from "vitest";
import { openHosts } from "../../../../src/platform/database/failover/open-hosts.ts";
import { readReplicationState } from "../../../../src/platform/database/failover/read-replication-state.ts";
import { Timelines } from "../../../../src/platform/database/failover/timelines.ts";
import { type PostgresSettings, postgresSettings } from "../../../support/backends.ts";
import { findPostgresql } from "../../../support/postgresql/binaries.ts";
import { type Cluster, startCluster } from "../../../support/postgresql/cluster.ts";
import { suiteCleanup } from "../../../support/suite-cleanup.ts";
import { waitFor } from "../../../support/wait-for.ts";

const binaries = findPostgresql(["initdb", "postgres", "pg_basebackup"]);

describe.runIf(binaries)("an old primary beside its successor and a standby of that: PostgreSQL", () => {
  const cleanup = suiteCleanup();
  const settings = ["fsync=off", "max_connections=12", "shared_buffers=16MB"];
  let old: Cluster;
  let successor: Cluster;
  let standby: Cluster;

  async function started(primary = ""): Promise<Cluster> {
    const cluster = await startCluster(binaries ?? "", settings, primary);
    cleanup.defer(() => cluster.stop());
    return cluster;
  }

  function connect({ url }: Cluster, username: string): postgres.Sql {
    const sql = postgres(url, { username, max: 1, onnotice: () => undefined });
    cleanup.defer(() => sql.end({ timeout: 1 }));
    return sql;
  }

  /** Asks as a user who may do nothing, or may also see the statistics. */
  async function stateOf(cluster: Cluster, user: "ordinary" | "observer" = "ordinary") {
    const sql = connect(cluster, user);
    try {
      return await readReplicationState(async (text) => sql.unsafe(text));
    } finally {
      await sql.end({ timeout: 1 });
    }
  }

  const addressOf = ({ url }: Cluster) => ({ host: new URL(url).hostname, port: Number(new URL(url).port) });

  /** As a process that has just started, with these hosts in `DB_HOST`. */
  function hostsOf(...clusters: Cluster[]) {
    const hosts = clusters.map(addressOf);
    const user = { user: "ordinary", password: "unused" };
    const database = { name: "postgres", ...user, migrationUser: "unused", migrationPassword: "unused" };
    const opened: PostgresSettings = {
      ...postgresSettings({ host: "unused", port: 1, ...database }),
      hosts,
    };
    return openHosts(opened, hosts, user, undefined, new Timelines());
  }

  beforeAll(async () => {
    old = await started();
    const admin = connect(old, "postgres");
    await admin`create role ordinary login`;
    await admin`create role observer login in role pg_read_all_stats`;
    successor = await started(old.url);
    standby = await started(successor.url);
  });

  test("standbys say which timeline they follow, and that they receive it, to who may see that", async () => {
    expect(await stateOf(old)).toMatchObject({ timeline: 1 });
    await waitFor(async () =>
      expect(await stateOf(standby, "observer")).toMatchObject({ followed: 1, isReceiving: true }),
    );
    await connect(successor, "postgres")`select pg_promote()`;
    expect(await stateOf(successor)).toMatchObject({ timeline: 2 });
    await waitFor(async () =>
      expect(await stateOf(standby, "observer")).toMatchObject({ followed: 2, isReceiving: true }),
    );
    await connect(successor, "postgres")`checkpoint`;
    const own = connect(standby, "postgres");
    await waitFor(async () => {
      await own`checkpoint`;
      expect(await stateOf(standby)).toEqual({
        ...{ cluster: (await stateOf(old)).cluster, timeline: undefined, followed: 2 },
        isReceiving: false,
      });
    });
  });

  test("the old primary is not used while its successor has no connection left", async () => {
    const taken: postgres.Sql[] = [];
    const isFull = async () => {
      const sql = connect(successor, "ordinary");
      taken.push(sql);
      return sql`select 1`.then(
        () => false,
        () => true,
      );
    };
    while (!(await isFull()));
    const hosts = hostsOf(old, successor);
    await expect(hosts.locate()).rejects.toThrow(/it is not certain .*\) and may be a newer primary/);
    await Promise.all(taken.map((sql) => sql.end({ timeout: 1 })));
    await waitFor(async () => expect(await hosts.locate()).toEqual(addressOf(successor)));
  });

  test("the old primary is not used where only a standby tells of its successor", async () => {
    await successor.halt("fast");
    const hosts = hostsOf(old, successor, standby);
    await expect(hosts.locate()).rejects.toThrow("writes an old timeline");
  });
});
