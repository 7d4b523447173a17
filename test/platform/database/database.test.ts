/** The database behind its one type: migrations, the rights of its two users, and what its errors mean. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import { sql } from "drizzle-orm";
import postgres from "postgres";
import { beforeAll, describe, expect, test } from "vitest";
import { authMigrations } from "../../../src/auth/service.ts";
import {
  isDatabaseUnavailable,
  sqlState,
  violatedUnique,
} from "../../../src/platform/base/database-errors.ts";
import { asServiceError, ErrorKinds } from "../../../src/platform/base/errors.ts";
import { arrayLiteral, type Database, type OpenDatabase } from "../../../src/platform/database/database.ts";
import { isMigrated } from "../../../src/platform/database/migrations/migrations.ts";
import { openDatabase } from "../../../src/platform/database/open.ts";
import { listening } from "../../../src/platform/http/server.ts";
import { createTestDatabase, postgresSettings } from "../../support/backends.ts";
import { withNextMigration } from "../../support/next-migration.ts";
import { requiredPostgresUrl } from "../../support/postgresql/server.ts";
import { rows } from "../../support/rows.ts";
import { backends, closedPort, databaseEnvironment } from "../../support/servers.ts";
import { createServiceDatabase, type ServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

async function errorOf(work: PromiseLike<unknown>): Promise<unknown> {
  const failure = await Promise.resolve(work).then(
    () => undefined,
    (error: unknown) => error ?? new Error("nothing"),
  );
  return failure ?? expect.fail("it did not fail");
}

describe.each(backends)("migrations on %s", (backend) => {
  let own: ServiceDatabase;
  let database: OpenDatabase;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    own = await createServiceDatabase(backend, authMigrations);
    cleanup.defer(() => own.drop());
    database = await own.open();
  });

  async function tables(db: Database): Promise<string[]> {
    const found = await rows<{ name: string }>(
      db,
      sql`select format('%s.%s', schemaname, tablename) as name from pg_tables
        where schemaname in ('auth', 'migrations') order by 1`,
    );
    return found.map(({ name }) => name);
  }

  test("an empty database is not migrated, and a migrated one is; migrating again changes nothing", async () => {
    expect(await database.isMigrated()).toBe(false);
    await database.migrate();
    expect(await database.isMigrated()).toBe(true);
    const after = await tables(database.db);
    expect(after).toContain("auth.authorizations");
    const history = () => rows(database.db, sql`select hash, created_at::text as at from migrations.auth`);
    const before = await history();
    expect(before.length).toBeGreaterThan(0);
    await database.migrate();
    expect(await tables(database.db)).toEqual(after);
    expect(await history()).toEqual(before);
  });

  test("a database that lacks the newest migration is not migrated, whatever it has", async () => {
    await database.migrate();
    const next = withNextMigration(authMigrations, "select 1;");
    expect(await isMigrated(database.db, next, "")).toBe(false);
    expect(await isMigrated(database.db, authMigrations, "")).toBe(true);
  });

  test("the name of a violated unique index is found in the errors of both drivers", async () => {
    await database.migrate();
    const insert = (id: string, phone: string, email: string) =>
      database.db.execute(sql`
        insert into auth.identities (id, phone, email, created_at, updated_at)
        values (${id}, ${phone}, ${email}, now(), now())`);
    await insert("a", "+1", "a@example.com");
    const violations = {
      identities_pkey: insert("a", "+2", "b@example.com"),
      identities_phone_unique: insert("b", "+1", "b@example.com"),
      identities_email_unique: insert("b", "+2", "A@EXAMPLE.com"),
    };
    for (const [index, violation] of Object.entries(violations)) {
      const error = await errorOf(violation);
      expect(violatedUnique(error)).toBe(index);
      expect(sqlState(error)).toBe("23505");
      expect(isDatabaseUnavailable(error)).toBe(false);
    }
    const inTransaction = database.db.transaction((tx) =>
      tx.execute(
        sql`insert into auth.identities (id, phone, created_at, updated_at) values ('a', '+3', now(), now())`,
      ),
    );
    expect(violatedUnique(await errorOf(inTransaction))).toBe("identities_pkey");
  });

  test("an error of the statement is neither a violation nor an absence", async () => {
    const states = {
      "42P01": sql`select 1 from auth.nothing`,
      "42601": sql`selec 1`,
      "22P02": sql`select 'x'::int`,
      "22012": sql`select 1 / 0`,
      "23502": sql`insert into auth.identities (id) values (null)`,
    };
    for (const [state, statement] of Object.entries(states)) {
      const error = await errorOf(database.db.execute(statement));
      expect(sqlState(error)).toBe(state);
      expect(violatedUnique(error)).toBeUndefined();
      expect(isDatabaseUnavailable(error)).toBe(false);
      expect(asServiceError(error).kind).toBe(ErrorKinds.internal);
    }
  });

  test("a list of any texts goes there as one parameter and comes back as it was", async () => {
    const list = [
      "plain",
      "a,b",
      "{c}",
      "NULL",
      "null",
      "",
      " ",
      '"',
      "\\",
      '\\"',
      "d'e",
      "é🔑",
      "\n\t",
      "$1",
      "--",
    ];
    const [found] = await rows<{ json: unknown }>(
      database.db,
      sql`select to_jsonb(${arrayLiteral(list)}::text[]) as json`,
    );
    expect(found?.json).toEqual(list);
    const [empty] = await rows<{ n: number }>(
      database.db,
      sql`select cardinality(${arrayLiteral([])}::text[]) as n`,
    );
    expect(empty?.n).toBe(0);
  });
});

describe.runIf(backends.includes("PostgreSQL"))("PostgreSQL", () => {
  test("several processes that migrate an empty database at once end with it migrated once", async () => {
    const own = await createServiceDatabase("PostgreSQL", authMigrations);
    const all = await Promise.all(Array.from({ length: 4 }, () => own.open()));
    await Promise.all(all.map((database) => database.migrate()));
    for (const database of all) expect(await database.isMigrated()).toBe(true);
    const history = await rows(all[0]?.db ?? expect.fail("not open"), sql`select hash from migrations.auth`);
    expect(new Set(history.map(({ hash }) => hash)).size).toBe(history.length);
    await own.drop();
  });

  test("kill -9 in the middle of a migration leaves nothing half done, and it can be run again", async () => {
    const target = await createTestDatabase();
    const inside = requiredPostgresUrl();
    inside.pathname = `/${target.name}`;
    const admin = postgres(inside.href, { max: 2, onnotice: () => undefined });
    const waiting = () => admin`
      select 1 from pg_stat_activity where datname = ${target.name} and wait_event_type = 'Lock'`;
    // Makes the migration wait within its transaction, until this one is rolled back.
    const blocked = Promise.withResolvers<void>();
    const blocking = admin
      .begin(async (tx) => {
        await tx`create schema auth`;
        const env = { PATH: process.env["PATH"] ?? "", ...databaseEnvironment(target) };
        const child = spawn(process.execPath, ["src/migrate.ts"], { env, stdio: "ignore" });
        const gone = once(child, "exit");
        await waitFor(async () => expect(await waiting()).toHaveLength(1));
        child.kill("SIGKILL");
        await gone;
        blocked.resolve();
        throw new Error("rolled back");
      })
      .catch((error: unknown) => error);
    await blocked.promise;
    expect(await blocking).toMatchObject({ message: "rolled back" });
    const database = await openDatabase(postgresSettings(target), authMigrations);
    expect(await database.isMigrated()).toBe(false);
    await database.migrate();
    expect(await database.isMigrated()).toBe(true);
    await database.close();
    await admin.end();
    await target.drop();
  });

  describe("with its two users", () => {
    let own: ServiceDatabase;
    let database: OpenDatabase;
    const cleanup = suiteCleanup();
    beforeAll(async () => {
      own = await createServiceDatabase("PostgreSQL", authMigrations);
      cleanup.defer(() => own.drop());
      database = await own.open();
      await database.migrate();
    });

    test("the ordinary user reads and writes every table", async () => {
      const found = await rows<{ name: string }>(
        database.db,
        sql`select format('%I.%I', schemaname, tablename) as name from pg_tables where schemaname = 'auth'`,
      );
      expect(found.length).toBeGreaterThanOrEqual(7);
      for (const { name } of found) {
        const table = sql.raw(name);
        expect(await rows(database.db, sql`select * from ${table} limit 1`)).toEqual([]);
        await database.db.execute(sql`delete from ${table}`);
        const [rights] = await rows<{ insert: boolean; update: boolean }>(
          database.db,
          sql`select has_table_privilege(${name}, 'INSERT') as insert, has_table_privilege(${name}, 'UPDATE') as update`,
        );
        expect(rights).toEqual({ insert: true, update: true });
      }
      await database.db.execute(sql`
        insert into auth.outbox (id, type, subject, data, occurred_at)
        values (gen_random_uuid(), 't', 's', '{}', now())`);
    });

    test.each([
      "create table auth.mine (id int)",
      "create table public.mine (id int)",
      "create schema mine",
      "drop table auth.clients",
      "drop schema auth cascade",
      "truncate auth.outbox",
      "alter table auth.clients add column more text",
      "alter table auth.clients disable trigger all",
      "create index more on auth.clients (client_name)",
      "create view auth.view as select 1",
      "create function auth.f() returns int language sql as 'select 1'",
      "create trigger t before insert on auth.clients execute function now()",
      "comment on table auth.clients is 'mine'",
      "insert into migrations.auth (hash, created_at) values ('x', 0)",
      "delete from migrations.auth",
      "update migrations.auth set created_at = 0",
      "select setval('auth.outbox_position_seq', 1)",
      "copy auth.clients to program 'cat'",
      "set role gatepost_migration_test",
      "select pg_read_file('/etc/passwd')",
    ])("the ordinary user is refused: %s", async (statement) => {
      const error = await errorOf(database.db.execute(sql.raw(statement)));
      expect(sqlState(error)).toBe("42501");
      expect(isDatabaseUnavailable(error)).toBe(false);
    });

    test("an ordinary user without rights sees a database that is not migrated, and no error", async () => {
      const fresh = await createServiceDatabase("PostgreSQL", authMigrations);
      expect(await (await fresh.open()).isMigrated()).toBe(false);
      await fresh.drop();
    });

    test("errors of an unavailable database are distinguished from errors of a statement", async () => {
      const elsewhere = async (host: string, port: number) =>
        ask(await own.open({ hosts: [{ host, port }] }));
      const inTransaction = (...statements: string[]) =>
        database.db.transaction(async (tx) => {
          for (const statement of statements) await tx.execute(sql.raw(statement));
        });
      const failures: Record<string, [() => Promise<unknown>, string?]> = {
        "nothing listens": [() => elsewhere("127.0.0.1", closedPort)],
        "the name is unknown": [() => elsewhere("nowhere.invalid", 5432)],
        "the connection is ended by an operator": [
          async () => rows((await own.open()).db, sql`select pg_terminate_backend(pg_backend_pid())`),
        ],
        "the operator says so": [
          () => inTransaction("do $$ begin raise exception sqlstate '57P01'; end $$"),
          "57P01",
        ],
        "the statement takes too long": [
          () => inTransaction("set local statement_timeout = 20", "select pg_sleep(60)"),
          "57014",
        ],
        "the database is read-only": [
          () => inTransaction("set transaction read only", "delete from auth.outbox"),
          "25006",
        ],
        "there are too many connections": [
          () => inTransaction("do $$ begin raise exception sqlstate '53300'; end $$"),
          "53300",
        ],
      };
      for (const [what, [fail, state]] of Object.entries(failures)) {
        const error = await errorOf(fail());
        expect({ what, unavailable: isDatabaseUnavailable(error) }).toEqual({ what, unavailable: true });
        if (state) expect(sqlState(error), what).toBe(state);
        expect(asServiceError(error).kind).toBe(ErrorKinds.unavailable);
      }
      await waitFor(async () => expect(await ask(database)).toEqual([{ one: 1 }]));
    });

    test.each<[string, (socket: Socket) => void]>([
      ["hangs up without a word", (socket) => socket.end()],
      ["resets the connection", (socket) => socket.resetAndDestroy()],
      ["speaks another protocol", (socket) => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n")],
      ["says nothing", () => undefined],
    ])("what %s is no database: neither a query nor a migration waits for it", async (_, behave) => {
      const impostor = createServer((socket) => behave(socket.on("error", () => undefined)));
      const port = await listening(impostor, "127.0.0.1", 0);
      const elsewhere = await own.open({
        hosts: [{ host: "127.0.0.1", port }],
        migrationHosts: [{ host: "127.0.0.1", port }],
      });
      const failures = await Promise.all([errorOf(elsewhere.migrate()), errorOf(ask(elsewhere))]);
      expect(failures.map(isDatabaseUnavailable)).toEqual([true, true]);
      await elsewhere.close();
      impostor.close();
    });

    test("PostgreSQL asks a silent process whether it is there", async () => {
      const settings = sql`select name, setting from pg_settings where name like 'tcp_%' order by 1`;
      expect(await rows(database.db, settings)).toEqual([
        { name: "tcp_keepalives_count", setting: "3" },
        { name: "tcp_keepalives_idle", setting: "10" },
        { name: "tcp_keepalives_interval", setting: "10" },
        { name: "tcp_user_timeout", setting: "40000" },
      ]);
    });

    test("a process continues after all of its connections were closed", async () => {
      await Promise.all(Array.from({ length: 8 }, () => ask(database)));
      await own.terminate();
      // The next statement on such a connection may fail, with an error that means that the database is unavailable.
      await waitFor(async () => {
        const outcomes = await Promise.allSettled(Array.from({ length: 8 }, () => ask(database)));
        const failed = outcomes.flatMap((outcome) => (outcome.status === "rejected" ? [outcome.reason] : []));
        expect(failed.filter((error) => !isDatabaseUnavailable(error))).toEqual([]);
        expect(failed).toEqual([]);
      });
    });
  });
});

function ask({ db }: OpenDatabase): Promise<{ one: number }[]> {
  return rows(db, sql`select 1 as one`);
}
