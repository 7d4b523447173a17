/** What is at the other end of a connection: a primary, whose commits are durable, and as many sessions as were said. */
import { chownSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { sql } from "drizzle-orm";
import postgres from "postgres";
import { beforeAll, describe, expect, test } from "vitest";
import { authMigrations } from "../../../../src/auth/service.ts";
import { isDatabaseUnavailable } from "../../../../src/platform/base/database-errors.ts";
import { checkSession } from "../../../../src/platform/database/connections/session.ts";
import type { Executor, OpenDatabase } from "../../../../src/platform/database/database.ts";
import { rawRows } from "../../../../src/platform/database/sql/statements.ts";
import { postgresSettings } from "../../../support/backends.ts";
import { type DatabaseWire, openDatabaseWire } from "../../../support/database-wire.ts";
import { localhostCertificate } from "../../../support/localhost-certificate.ts";
import { findPostgresql, serverUser } from "../../../support/postgresql/binaries.ts";
import { type Cluster, startCluster } from "../../../support/postgresql/cluster.ts";
import { requiredPostgresUrl } from "../../../support/postgresql/server.ts";
import { backends } from "../../../support/servers.ts";
import { createMigratedServiceDatabase, type ServiceDatabase } from "../../../support/service-database.ts";
import { suiteCleanup } from "../../../support/suite-cleanup.ts";
import { waitFor } from "../../../support/wait-for.ts";

const lanes = ["db", "reads"] as const;

async function selected(db: Executor, expression: string): Promise<unknown> {
  const [row] = await rawRows(db, sql.raw(`select ${expression} as value`));
  return row?.["value"];
}

describe.runIf(backends.includes("PostgreSQL"))("sessions on PostgreSQL", () => {
  let own: ServiceDatabase;
  let name: string;
  let user: string;
  let admin: postgres.Sql;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    own = await createMigratedServiceDatabase("PostgreSQL", authMigrations);
    cleanup.defer(() => own.drop());
    if (own.settings.kind !== "postgres") throw new Error("not PostgreSQL");
    ({ name, user } = own.settings);
    admin = postgres(requiredPostgresUrl().href, { max: 1, onnotice: () => undefined });
    cleanup.defer(() => admin.end());
  });

  test.each([
    ["off", "on"],
    ["local", "on"],
    ["remote_write", "on"],
    ["on", "on"],
    ["remote_apply", "remote_apply"],
  ])("a user whose synchronous_commit is %s commits with %s", async (given, effective) => {
    await admin.unsafe(`alter role ${user} in database ${name} set synchronous_commit = ${given}`);
    const database = await own.open();
    for (const lane of lanes)
      expect(await selected(database[lane], "current_setting('synchronous_commit')")).toBe(effective);
    await database.close();
    await admin.unsafe(`alter role ${user} in database ${name} reset all`);
  });

  test.each([
    ["default_transaction_isolation", "repeatable read", "read committed"],
    ["default_transaction_isolation", "serializable", "read committed"],
    ["client_min_messages", "error", "notice"],
    ["client_min_messages", "warning", "warning"],
  ])("a user whose %s is %s has sessions with %s", async (setting, given, effective) => {
    await admin.unsafe(`alter role ${user} in database ${name} set ${setting} = '${given}'`);
    const database = await own.open();
    for (const lane of lanes)
      expect(await selected(database[lane], `current_setting('${setting}')`)).toBe(effective);
    await database.close();
    await admin.unsafe(`alter role ${user} in database ${name} reset all`);
  });

  test.each([
    ["synchronous_commit", "off", "on"],
    ["default_transaction_isolation", "repeatable read", "read committed"],
    ["client_min_messages", "error", "notice"],
  ])(
    "a user whose %s is %s is refused in a pooler's session, which is shared",
    async (setting, given, needed) => {
      const session = await admin.reserve();
      await session.unsafe(`set ${setting} = '${given}'`);
      await expect(checkSession((text) => session.unsafe(text), true)).rejects.toThrow(
        `alter role … set ${setting} = '${needed}'`,
      );
      await session.unsafe(`reset ${setting}`);
      session.release();
    },
  );

  test("a migration takes as long as it takes, whatever timeout its user has", async () => {
    if (own.settings.kind !== "postgres") throw new Error("not PostgreSQL");
    const owner = own.settings.migrationUser;
    await admin.unsafe(`alter role ${owner} in database ${name} set statement_timeout = 1`);
    const database = await own.open();
    await database.migrate();
    await database.close();
    await admin.unsafe(`alter role ${owner} in database ${name} reset all`);
  });

  test("changes of one row at once all succeed, whatever isolation the user's transactions begin with", async () => {
    await admin.unsafe(
      `alter role ${user} in database ${name} set default_transaction_isolation = 'serializable'`,
    );
    const database = await own.open();
    await database.db.execute(sql`insert into auth.client_lists values (1, 0, 'none')`);
    const change = () => database.db.execute(sql`update auth.client_lists set revision = revision + 1`);
    await Promise.all(Array.from({ length: 40 }, change));
    const [row] = await rawRows(database.db, sql`select revision from auth.client_lists`);
    expect(row).toEqual({ revision: 40 });
    await database.close();
    await admin.unsafe(`alter role ${user} in database ${name} reset all`);
  });

  test("the connections for reading write nothing, and lock nothing", async () => {
    const database = await own.open();
    for (const statement of ["delete from auth.outbox", "select 1 from auth.clients for share"]) {
      await database.db.execute(sql.raw(statement));
      const refused = await database.reads.execute(sql.raw(statement)).then(
        () => undefined,
        (error: unknown) => error,
      );
      expect(refused).toMatchObject({ cause: { code: "25006" } });
    }
    await database.close();
  });

  test("there are never more of them than were said, whatever they are needed for", async () => {
    const poolSize = 6;
    const database = await own.open({ poolSize });
    let most = 0;
    let isDone = false;
    async function watch(): Promise<void> {
      while (!isDone) {
        const found = await admin`
          select count(*)::int as n from pg_stat_activity
          where datname = ${name} and application_name = 'gatepost'`;
        most = Math.max(most, Number(found[0]?.["n"]));
        await setTimeout(5);
      }
    }
    const watching = watch();
    await Promise.all(
      Array.from({ length: 100 }, (_, index) => {
        if (index % 4 === 0) return database.db.transaction((tx) => selected(tx, "pg_sleep(0.02)::text"));
        return selected(index % 4 < 3 ? database.db : database.reads, "pg_sleep(0.02)::text");
      }),
    );
    isDone = true;
    await watching;
    expect(most).toBe(poolSize);
    await database.close();
  });
});

/** Of a cluster that believes everybody. */
function superuserSettings(host: string, port: number) {
  const [user, password] = ["postgres", ""];
  return postgresSettings({
    ...{ host, port, name: "postgres", user, password },
    ...{ migrationUser: user, migrationPassword: password },
  });
}

const binaries = findPostgresql(["initdb", "postgres", "pg_basebackup"]);

describe.runIf(binaries !== undefined)("a hot standby in the primary's place", () => {
  let primary: Cluster;
  let standby: Cluster;
  let wire: DatabaseWire;
  let database: OpenDatabase;
  const addressOf = ({ url }: Cluster) => ({ host: "127.0.0.1", port: Number(new URL(url).port) });
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    primary = await startCluster(binaries ?? "", ["fsync=off"]);
    cleanup.defer(() => primary.stop());
    standby = await startCluster(binaries ?? "", ["fsync=off"], primary.url);
    cleanup.defer(() => standby.stop());
    const { host, port } = addressOf(primary);
    wire = await openDatabaseWire(host, port);
    cleanup.defer(() => wire.close());
    const { openPostgresql } = await import("../../../../src/platform/database/postgresql.ts");
    const quiet = { lane() {}, waited() {}, connectFailed() {} };
    database = openPostgresql(superuserSettings("127.0.0.1", wire.port), authMigrations, quiet);
    cleanup.defer(() => database.close());
  });

  test("cannot weaken the commits of open connections by a new configuration", async () => {
    const admin = postgres(primary.url, { max: 1, onnotice: () => undefined });
    try {
      for (const lane of lanes) await selected(database[lane], "1");
      await admin`alter system set synchronous_commit = off`;
      await admin`select pg_reload_conf()`;
      await waitFor(async () =>
        expect(await admin`show synchronous_commit`).toEqual([{ synchronous_commit: "off" }]),
      );
      for (const lane of lanes)
        expect(await selected(database[lane], "current_setting('synchronous_commit')")).toBe("on");
    } finally {
      await admin`alter system reset synchronous_commit`;
      await admin`select pg_reload_conf()`;
      await admin.end();
    }
  });

  test("is not asked, and the process is not ready; with the primary back, all is as before", async () => {
    expect(await database.isReachable()).toBe(true);
    const mend = await wire.cut();
    await mend(addressOf(standby));
    await waitFor(async () => {
      for (const lane of lanes) {
        const error = await selected(database[lane], "1").catch((reason: unknown) => reason);
        expect(isDatabaseUnavailable(error)).toBe(true);
      }
    });
    expect(await database.isReachable()).toBe(false);
    const back = await wire.cut();
    await back(addressOf(primary));
    await waitFor(async () => expect(await database.isReachable()).toBe(true));
    for (const lane of lanes) await waitFor(async () => expect(await selected(database[lane], "1")).toBe(1));
  });
});

describe.runIf(binaries !== undefined)("encrypted connections", () => {
  let cluster: Cluster;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const directory = mkdtempSync(join(tmpdir(), "gatepost-test-"));
    cleanup.defer(async () => rmSync(directory, { recursive: true, force: true }));
    const files = { cert: join(directory, "server.crt"), key: join(directory, "server.key") };
    const owner = serverUser();
    if (owner) chownSync(directory, owner.uid, owner.gid);
    for (const part of ["cert", "key"] as const) {
      writeFileSync(files[part], localhostCertificate[part], { mode: 0o600 });
      if (owner) chownSync(files[part], owner.uid, owner.gid);
    }
    const ssl = ["ssl=on", `ssl_cert_file=${files.cert}`, `ssl_key_file=${files.key}`];
    cluster = await startCluster(binaries ?? "", ["fsync=off", ...ssl]);
    cleanup.defer(() => cluster.stop());
  });

  async function isEncrypted(
    host: string,
    ssl: "disable" | "require" | "verify-full",
    sslCa?: string,
  ): Promise<unknown> {
    const { openPostgresql } = await import("../../../../src/platform/database/postgresql.ts");
    const database = openPostgresql(
      { ...superuserSettings(host, Number(new URL(cluster.url).port)), ssl, sslCa },
      authMigrations,
      { lane() {}, waited() {}, connectFailed() {} },
    );
    const encryption = "(select ssl from pg_stat_ssl where pid = pg_backend_pid())";
    try {
      return await selected(database.db, encryption);
    } finally {
      await database.close();
    }
  }

  test.each([
    ["127.0.0.1", "disable", undefined, false],
    ["127.0.0.1", "require", undefined, true],
    ["127.0.0.1", "require", localhostCertificate.cert, true],
    ["127.0.0.1", "verify-full", localhostCertificate.cert, true],
    ["localhost", "verify-full", localhostCertificate.cert, true],
  ] as const)("to %s with DB_SSL=%s", async (host, ssl, sslCa, expected) => {
    expect(await isEncrypted(host, ssl, sslCa)).toBe(expected);
  });

  test.each([
    // The certificate is not for this name, or nobody who is trusted has signed it.
    ["127.0.0.2", "verify-full", localhostCertificate.cert],
    ["127.0.0.1", "verify-full", undefined],
  ] as const)(
    "to %s with DB_SSL=%s and a certificate that does not fit are refused",
    async (host, ssl, ca) => {
      await expect(isEncrypted(host, ssl, ca)).rejects.toThrow();
    },
  );
});
