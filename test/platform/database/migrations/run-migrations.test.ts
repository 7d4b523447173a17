/** How migrations are run: each by itself, and indexes while others write. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { sql } from "drizzle-orm";
import postgres from "postgres";
import { describe, expect, onTestFinished, test } from "vitest";
import type { Database, OpenDatabase } from "../../../../src/platform/database/database.ts";
import { checkForClient } from "../../../../src/platform/database/migrations/migrate-postgresql.ts";
import type { Migrations } from "../../../../src/platform/database/migrations/migrations.ts";
import { openDatabase } from "../../../../src/platform/database/open.ts";
import { openDatabaseWire } from "../../../support/database-wire.ts";
import { requiredPostgresUrl } from "../../../support/postgresql/server.ts";
import { rows } from "../../../support/rows.ts";
import { type Backend, backends } from "../../../support/servers.ts";
import { createServiceDatabase, type ServiceDatabase } from "../../../support/service-database.ts";
import { waitFor } from "../../../support/wait-for.ts";

const things = [
  "create schema sample;--> statement-breakpoint\ncreate table sample.things (id bigint primary key, kind text);",
  "insert into sample.things select n, n % 10 from generate_series(1, 1000) n;",
];
const byKind = 'CREATE INDEX CONCURRENTLY "things_kind" ON "sample"."things" USING btree ("kind");';

/** A history of these migrations. */
function historyOf(migrations: readonly string[]): Migrations {
  const folder = mkdtempSync(join(tmpdir(), "gatepost-history-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  mkdirSync(join(folder, "meta"));
  const entries = migrations.map((text, idx) => {
    writeFileSync(join(folder, `${idx}.sql`), text);
    return { idx, version: "7", when: 1_800_000_000_000 + idx, tag: `${idx}`, breakpoints: true };
  });
  writeFileSync(
    join(folder, "meta/_journal.json"),
    JSON.stringify({ version: "7", dialect: "postgresql", entries }),
  );
  return { schema: "sample", folder: pathToFileURL(`${folder}/`) };
}

/** Runs a history, and closes what it was run by. */
async function migrate(
  { settings }: Pick<ServiceDatabase, "settings">,
  migrations: readonly string[],
  report?: (message: string) => void,
): Promise<void> {
  const database = await openDatabase(settings, historyOf(migrations));
  try {
    await database.migrate(report);
  } finally {
    await database.close();
  }
}

async function migratedDatabase(backend: Backend): Promise<ServiceDatabase> {
  const own = await createServiceDatabase(backend, historyOf(things));
  onTestFinished(() => own.drop());
  await migrate(own, things);
  return own;
}

/** What is known of a database while it is open for it alone. */
async function seen<T>(
  { settings }: ServiceDatabase,
  look: (database: OpenDatabase) => Promise<T>,
): Promise<T> {
  const database = await openDatabase(settings, historyOf(things));
  try {
    return await look(database);
  } finally {
    await database.close();
  }
}

const run = (db: Database) => rows<{ n: number }>(db, sql`select count(*)::int as n from migrations.sample`);
const indexes = (db: Database) =>
  rows(
    db,
    sql`select indexrelid::regclass::text as name, indisvalid as valid from pg_index
      where indrelid = 'sample.things'::regclass and not indisprimary`,
  );
const isThere = [{ name: "sample.things_kind", valid: true }];

describe.each(backends)("migrations on %s", (backend) => {
  test("those before one that fails stay, and it has changed nothing", async () => {
    const own = await migratedDatabase(backend);
    const failing = "delete from sample.things;--> statement-breakpoint\nselect 1 / 0;";
    await expect(
      migrate(own, [...things, "alter table sample.things add column size int;", failing]),
    ).rejects.toThrow();
    await seen(own, async ({ db }) => {
      expect(await run(db)).toEqual([{ n: 3 }]);
      expect(
        await rows(db, sql`select count(size)::int as sizes, count(*)::int as n from sample.things`),
      ).toEqual([{ sizes: 0, n: 1000 }]);
    });
  });

  test("an index is built outside of a transaction where it says so, once", async () => {
    const own = await migratedDatabase(backend);
    await migrate(own, [...things, `-- For look-ups.\n${byKind}`]);
    await migrate(own, [...things, byKind]);
    await seen(own, async ({ db }) => {
      expect(await indexes(db)).toEqual(isThere);
      expect(await run(db)).toEqual([{ n: 3 }]);
    });
  });

  test("an index whose building was broken off is built anew", async () => {
    const own = await migratedDatabase(backend);
    const unique = byKind.replace("INDEX", "UNIQUE INDEX");
    await expect(migrate(own, [...things, unique])).rejects.toThrow();
    await seen(own, async ({ db }) => {
      expect(await indexes(db)).toEqual([{ name: "sample.things_kind", valid: false }]);
      expect(await run(db)).toEqual([{ n: 2 }]);
    });
    await migrate(own, [...things, byKind]);
    await seen(own, async ({ db }) => expect(await indexes(db)).toEqual(isThere));
  });

  test("one that builds an index concurrently and does something else is refused", async () => {
    const own = await migratedDatabase(backend);
    const both = `delete from sample.things;--> statement-breakpoint\n${byKind}`;
    await expect(migrate(own, [...things, both])).rejects.toThrow("cannot do anything else");
    await seen(own, async ({ db }) =>
      expect(await rows(db, sql`select count(*)::int as n from sample.things`)).toEqual([{ n: 1000 }]),
    );
  });
});

describe.runIf(backends.includes("PostgreSQL"))("an index that is built concurrently", () => {
  /** A database in which somebody has begun to write, for as long as the test wants. */
  async function whileSomebodyWrites() {
    const own = await migratedDatabase("PostgreSQL");
    const { settings } = own;
    if (settings.kind !== "postgres") throw new Error("not PostgreSQL");
    const url = requiredPostgresUrl();
    url.pathname = `/${settings.name}`;
    const admin = postgres(url.href, { max: 2, onnotice: () => undefined });
    onTestFinished(() => admin.end({ timeout: 1 }));
    const before = await admin.reserve();
    await before`begin`;
    await before`insert into sample.things values (0, 'before')`;
    /** The session that has built for so long, and waits. */
    const builder = (seconds = 0) =>
      waitFor(async () => {
        const [waiting] = await admin<{ pid: number }[]>`
          select pid from pg_stat_activity where datname = current_database() and query like 'CREATE INDEX CONCURRENTLY%'
            and wait_event_type = 'Lock' and query_start < clock_timestamp() - ${seconds} * interval '1 second'`;
        return waiting?.pid ?? expect.fail("nobody waits");
      });
    const commit = async () => {
      await before`commit`;
      before.release();
    };
    return { own, settings, admin, builder, commit };
  }

  test("waits for a transaction of before for as long as it takes, and others write meanwhile", async () => {
    const { own, admin, builder, commit } = await whileSomebodyWrites();
    const said: string[] = [];
    const building = migrate(own, [...things, byKind], (message) => said.push(message));
    // Longer than a migration waits for a lock.
    const isWaiting = builder(2);
    await Promise.race([isWaiting, building]);
    expect(said).toEqual([
      expect.stringMatching(/^Building index "sample"\."things_kind", while others write/),
    ]);
    await admin`insert into sample.things values (-1, 'meanwhile')`;
    await commit();
    await isWaiting;
    await building;
    await seen(own, async ({ db }) => expect(await indexes(db)).toEqual(isThere));
  });

  test("keeps another process waiting, which says for whom, again and again, and looks no more often", async () => {
    const { own, builder, commit } = await whileSomebodyWrites();
    const building = migrate(own, [...things, byKind]);
    const pid = await builder();
    const said: { readonly message: string; readonly at: number }[] = [];
    const second = migrate(own, [...things, byKind], (message) => {
      said.push({ message, at: performance.now() });
    });
    await waitFor(async () => expect(said.length).toBe(2));
    const [first, again] = said.map(({ at }) => at);
    expect(Number(again) - Number(first)).toBeGreaterThan(4_000);
    expect(said[0]?.message).toMatch(
      new RegExp(
        `^Another process migrates: gatepost \\(process ${pid}, user \\w+\\)\\. Waiting until it is done\\.$`,
      ),
    );
    await commit();
    await building;
    await second;
    await seen(own, async ({ db }) => expect(await indexes(db)).toEqual(isThere));
  });

  test("says what was broken off where its session is ended", async () => {
    const { own, admin, builder, commit } = await whileSomebodyWrites();
    const failure = migrate(own, [...things, byKind]).catch((error: unknown) => error);
    await admin`select pg_terminate_backend(${await builder()})`;
    // And not that a setting could not be restored on a connection that has ended.
    expect(String(await failure)).toContain('Failed query: CREATE INDEX CONCURRENTLY "things_kind"');
    await commit();
  });

  test("is broken off where the process that builds it is gone, so that another one can begin", async () => {
    const { own, settings, admin, builder, commit } = await whileSomebodyWrites();
    const [host] = settings.migrationHosts;
    if (!host) throw new Error("no host");
    const wire = await openDatabaseWire(host.host, host.port);
    onTestFinished(() => wire.close());
    const overWire = {
      settings: { ...settings, migrationHosts: [{ ...host, host: "127.0.0.1", port: wire.port }] },
    };
    const failure = migrate(overWire, [...things, byKind]).catch((error: unknown) => error);
    const pid = await builder();
    wire.reset();
    expect(await failure).toBeInstanceOf(Error);
    await waitFor(async () =>
      expect(await admin`select from pg_stat_activity where pid = ${pid}`).toHaveLength(0),
    );
    await commit();
    await migrate(own, [...things, byKind]);
    await seen(own, async ({ db }) => expect(await indexes(db)).toEqual(isThere));
  }, 30_000);

  test("is not built for ever where nobody says that the process is gone: the server asks for it", async () => {
    const own = await migratedDatabase("PostgreSQL");
    const session = `create table sample.session as select name, setting from pg_settings
      where name like 'tcp_%' or name = 'client_connection_check_interval'`;
    await migrate(own, [...things, session]);
    await seen(own, async ({ db }) =>
      expect(await rows(db, sql`select * from sample.session order by name`)).toEqual([
        { name: "client_connection_check_interval", setting: "10000" },
        { name: "tcp_keepalives_count", setting: "3" },
        { name: "tcp_keepalives_idle", setting: "10" },
        { name: "tcp_keepalives_interval", setting: "10" },
        { name: "tcp_user_timeout", setting: "40000" },
      ]),
    );
  });

  test("is built as well on a server that refuses such a check", async () => {
    const own = await migratedDatabase("PostgreSQL");
    await seen(own, async ({ db }) => {
      await checkForClient(db, "-1");
    });
  });

  test("is there once where several processes migrate at once", async () => {
    const own = await migratedDatabase("PostgreSQL");
    await Promise.all(Array.from({ length: 4 }, () => migrate(own, [...things, byKind])));
    await seen(own, async ({ db }) => {
      expect(await indexes(db)).toEqual(isThere);
      expect(await run(db)).toEqual([{ n: 3 }]);
    });
  });
});
