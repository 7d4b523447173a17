/** What PostgreSQL has confirmed by the standbys, while a synchronous one is gone; and that no other event is relayed. */
import { randomUUID } from "node:crypto";
import { type SQL, sql } from "drizzle-orm";
import { beforeAll, describe, expect, test } from "vitest";
import { outbox, relayLeases } from "../../src/auth/schema.ts";
import { authMigrations } from "../../src/auth/service.ts";
import { isDatabaseUnavailable } from "../../src/platform/base/database-errors.ts";
import type { Database, OpenDatabase } from "../../src/platform/database/database.ts";
import { openDatabase } from "../../src/platform/database/open.ts";
import { relayOnce } from "../../src/platform/messaging/relay.ts";
import { postgresSettings } from "../support/backends.ts";
import { captureLog } from "../support/captured-log.ts";
import { findPostgresql } from "../support/postgresql/binaries.ts";
import {
  type ReplicatedDatabase,
  startReplicatedDatabase,
} from "../support/postgresql/replicated-database.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { waitFor } from "../support/wait-for.ts";

const binaries = findPostgresql(["initdb", "postgres", "pg_basebackup"]);

/** A statement about a row that is there, or about none, by its key in a table of keys and values. */
const statements: Record<string, { text: (key: string) => SQL; isConfirmed: boolean }> = {
  insert: { text: (key) => sql`insert into kept values (${`new ${key}`})`, isConfirmed: true },
  "insert, on conflict do nothing": {
    text: (key) => sql`insert into kept values (${key}) on conflict do nothing`,
    isConfirmed: false,
  },
  "insert, on conflict do update where false": {
    text: (key) => sql`
      insert into kept values (${key}) on conflict (key) do update set key = excluded.key where false`,
    isConfirmed: true,
  },
  "update to the same": {
    text: (key) => sql`update kept set key = key where key = ${key}`,
    isConfirmed: true,
  },
  "update of none": {
    text: (key) => sql`update kept set key = key where key = ${`no ${key}`}`,
    isConfirmed: false,
  },
  "delete of none": { text: (key) => sql`delete from kept where key = ${`no ${key}`}`, isConfirmed: false },
  "for update": { text: (key) => sql`select from kept where key = ${key} for update`, isConfirmed: true },
  "for share": { text: (key) => sql`select from kept where key = ${key} for share`, isConfirmed: true },
  "for update of none": {
    text: (key) => sql`select from kept where key = ${`no ${key}`} for update`,
    isConfirmed: false,
  },
  "an advisory lock": { text: () => sql`select pg_advisory_xact_lock_shared(1)`, isConfirmed: false },
  "a message in the log": {
    text: () => sql`select pg_logical_emit_message(true, 'confirm', ''::text)`,
    isConfirmed: true,
  },
};

describe.runIf(binaries)("a primary whose synchronous standby is gone: PostgreSQL", () => {
  let replicated: ReplicatedDatabase;
  let database: OpenDatabase;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    replicated = await startReplicatedDatabase(binaries ?? "", [authMigrations], cleanup);
    // Each statement that waits has a connection to itself.
    const settings = { ...postgresSettings(replicated.database), poolSize: 40 };
    database = await openDatabase(settings, authMigrations);
    cleanup.defer(() => database.close());
    const { user } = replicated.database;
    const { admin } = replicated;
    await admin.unsafe(`
      create table kept (key text primary key);
      grant all on kept to ${user};
      grant usage on schema public to ${user}`);
  });

  test("what writes or locks a row waits for it, also where it changes nothing, and nothing else does", async () => {
    const { db } = database;
    const kinds = Object.entries(statements).flatMap(([name, statement]) => [
      { ...statement, name, run: (one: SQL) => db.execute(one) },
      {
        ...statement,
        name: `${name}, in a transaction`,
        run: (one: SQL) => db.transaction((tx) => tx.execute(one)),
      },
    ]);
    await Promise.all(kinds.map(({ name }) => db.execute(sql`insert into kept values (${name})`)));
    await replicated.standby.halt("fast");
    const found = await Promise.all(
      kinds.map(async ({ name, text, run }) => {
        const isConfirmed = run(text(name)).then(() => false, isDatabaseUnavailable);
        return [name, await isConfirmed] as const;
      }),
    );
    expect(Object.fromEntries(found)).toEqual(
      Object.fromEntries(kinds.map(({ name, isConfirmed }) => [name, isConfirmed])),
    );
    await replicated.standby.resume();
    await waitFor(() => database.confirm());
  }, 60_000);

  /** A statement of the query builder, with something that happens after it. */
  function followed<T extends object>(statement: T, meanwhile: () => Promise<void>): T {
    return new Proxy(statement, {
      get(target, key) {
        const member: unknown = Reflect.get(target, key);
        if (typeof member !== "function") return member;
        if (key === "then")
          return (...handlers: Parameters<Promise<unknown>["then"]>) =>
            Promise.resolve(target)
              .then((result) => meanwhile().then(() => result))
              .then(...handlers);
        return (...given: unknown[]) => followed(Object(Reflect.apply(member, target, given)), meanwhile);
      },
    });
  }
  /** The database, with something that happens after each row that is written in a transaction. */
  function after<T extends Database>(db: T, meanwhile: () => Promise<void>): T {
    return new Proxy(db, {
      get(target, key, receiver) {
        if (key === "transaction")
          return (work: (tx: Database) => Promise<unknown>) =>
            target.transaction((tx) => work(after(tx, meanwhile)));
        if (key !== "insert") return Reflect.get(target, key, receiver);
        return (table: typeof relayLeases) => followed(target.insert(table), meanwhile);
      },
    });
  }

  test("an event that no standby has is not delivered, though it can be seen", async () => {
    const delivered: string[] = [];
    const settings = {
      outbox,
      leases: relayLeases,
      source: "https://id.example.com",
      subscribers: [{ deliver: ({ subject }: { subject: string }) => void delivered.push(subject) }],
      logger: captureLog().logger,
    };
    /** Right after the lease was taken: an event whose commit the standby does not have, and nobody waits for. */
    async function write(): Promise<void> {
      const { admin } = replicated;
      await replicated.standby.halt("fast");
      const written = admin`
        insert into auth.outbox (id, type, subject, data, occurred_at)
        values (${randomUUID()}, 'auth.identity.created.v1', 'unconfirmed', '{}', now())`;
      written.catch(() => undefined);
      await waitFor(async () => {
        await admin`
          select pg_cancel_backend(pid) from pg_stat_activity
          where wait_event = 'SyncRep' and query like '%unconfirmed%' and pid <> pg_backend_pid()`;
        expect(await admin`select from auth.outbox`).toHaveLength(1);
      }, 20);
    }
    await expect(relayOnce({ ...settings, db: after(database.db, write) })).rejects.toThrow();
    expect(delivered).toEqual([]);
    await replicated.standby.resume();
    await waitFor(() => database.confirm());
    // The lease of the try that failed would have to run out.
    await database.db.execute(sql`delete from auth.relay_leases`);
    expect(await relayOnce({ ...settings, db: database.db })).toBe(1);
    expect(delivered).toEqual(["unconfirmed"]);
  }, 60_000);
});
