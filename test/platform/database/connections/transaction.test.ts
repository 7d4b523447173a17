/** Transactions on connections of their own: they take turns, and never commit or run less than the whole. */
import { setTimeout } from "node:timers/promises";
import { sql } from "drizzle-orm";
import postgres from "postgres";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { authMigrations } from "../../../../src/auth/service.ts";
import { isDatabaseUnavailable } from "../../../../src/platform/base/database-errors.ts";
import { Connection } from "../../../../src/platform/database/connections/connection.ts";
import { runTransaction } from "../../../../src/platform/database/connections/drizzle-over.ts";
import type { Database } from "../../../../src/platform/database/database.ts";
import { openDatabase } from "../../../../src/platform/database/open.ts";
import { divide } from "../../../../src/platform/database/postgresql.ts";
import { openDatabaseWire } from "../../../support/database-wire.ts";
import { requiredPostgresUrl } from "../../../support/postgresql/server.ts";
import { rows } from "../../../support/rows.ts";
import { backends } from "../../../support/servers.ts";
import { createServiceDatabase, type ServiceDatabase } from "../../../support/service-database.ts";
import { suiteCleanup } from "../../../support/suite-cleanup.ts";
import { waitFor } from "../../../support/wait-for.ts";

describe.runIf(backends.includes("PostgreSQL"))("transactions on PostgreSQL", () => {
  let admin: postgres.Sql;
  let db: Database;
  /** Of the same database, where transactions that would have to wait are run again. */
  let rerunning: Database;
  let settings: ServiceDatabase["settings"];
  let open: ServiceDatabase["open"];
  const poolSize = 8;
  const max = divide(poolSize).transactions;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const own = await createServiceDatabase("PostgreSQL", authMigrations);
    cleanup.defer(() => own.drop());
    if (own.settings.kind !== "postgres") throw new Error("not PostgreSQL");
    const url = requiredPostgresUrl();
    url.pathname = `/${own.settings.name}`;
    admin = postgres(url.href, { max: 1, onnotice: () => undefined });
    cleanup.defer(() => admin.end());
    await admin`create table public.entries (id int)`;
    await admin.unsafe("grant usage on schema public to public; grant all on public.entries to public");
    ({ settings, open } = own);
    ({ db } = await open({ poolSize }));
    const reruns = await openDatabase({ ...own.settings, poolSize }, authMigrations, undefined, undefined, {
      rerunsWaiting: true,
    });
    cleanup.defer(() => reruns.close());
    rerunning = reruns.db;
  });
  beforeEach(() => admin`delete from public.entries`);

  const stored = async () => (await admin`select id from public.entries order by id`).map(({ id }) => id);
  const insert = (tx: Database, id: number) => tx.execute(sql`insert into public.entries values (${id})`);

  test("one that fails while it begins leaves none open on its connection", async () => {
    if (settings.kind !== "postgres") throw new Error("not PostgreSQL");
    const { name: database, user: username, password } = settings;
    const [{ host, port } = { host: "", port: 0 }] = settings.hosts;
    const connection = new Connection(
      {
        ...{ address: { host, port }, prepare: false },
        ...{ timeoutMs: 5_000, connectTimeoutMs: 5_000, checkTimeoutMs: 5_000 },
        client: { host, port, database, username, ...(password !== undefined && { password }), ssl: false },
        check: async () => undefined,
      },
      () => undefined,
    );
    await connection.open();
    cleanup.defer(() => connection.terminate());
    // Refused by the second statement of three.
    const begun = runTransaction(connection, async () => undefined, { lock: -1, idle: 0 });
    await expect(begun).rejects.toMatchObject({ code: "22023" });
    await connection.query("insert into public.entries values (1)");
    expect(await stored()).toEqual([1]);
  });

  /** Ends the connection of a transaction from the side of the server. */
  async function terminate(tx: Database): Promise<void> {
    const [row] = await rows<{ pid: number }>(tx, sql`select pg_backend_pid() as pid`);
    const pid = Number(row?.pid);
    await admin`select pg_terminate_backend(${pid}::int)`;
    const alive = () => admin`select 1 from pg_stat_activity where pid = ${pid}::int`;
    await waitFor(async () => expect(await alive()).toEqual([]));
  }

  /** Repeats a query until it fails, since a closed connection may be noticed only after a moment. */
  async function untilLost(tx: Database): Promise<void> {
    await waitFor(async () => {
      const works = await tx.execute(sql`select 1`).then(
        () => true,
        () => false,
      );
      expect(works).toBe(false);
    });
  }

  test("more than there are connections wait for their turn, and all of them finish", async () => {
    let running = 0;
    let most = 0;
    // The first ones wait for each other: otherwise two could do it all while the third still connects.
    const together = Promise.withResolvers<void>();
    const results = await Promise.all(
      Array.from({ length: 10 * max }, (_, id) =>
        db.transaction(async (tx) => {
          running += 1;
          most = Math.max(most, running);
          if (running === max) together.resolve();
          await together.promise;
          await insert(tx, id);
          running -= 1;
          return id;
        }),
      ),
    );
    const all = Array.from({ length: 10 * max }, (_, id) => id);
    expect(results).toEqual(all);
    expect(await stored()).toEqual(all);
    expect(most).toBe(max);
  });

  test("those that wait get their turn after some that fail, too", async () => {
    const outcomes = await Promise.allSettled(
      Array.from({ length: 6 * max }, (_, id) =>
        db.transaction(async (tx) => {
          await insert(tx, id);
          if (id % 2 === 0) throw new Error("no");
        }),
      ),
    );
    expect(outcomes.filter(({ status }) => status === "rejected")).toHaveLength(3 * max);
    expect(await stored()).toEqual(Array.from({ length: 3 * max }, (_, index) => 2 * index + 1));
  });

  test("a statement that failed unnoticed keeps the transaction from ending as if it were done", async () => {
    const work = db.transaction(async (tx) => {
      await insert(tx, 1);
      await tx.execute(sql`select 1 / 0`).catch(() => undefined);
      return "done";
    });
    await expect(work).rejects.toThrow("failed unnoticed");
    expect(await stored()).toEqual([]);
  });

  describe("one whose connection is lost", () => {
    test("runs nothing of the rest on another connection", async () => {
      const tried: unknown[] = [];
      const ended = Promise.withResolvers<void>();
      const work = db.transaction(async (tx) => {
        await insert(tx, 1);
        await terminate(tx);
        await untilLost(tx);
        for (const id of [2, 3]) {
          try {
            await insert(tx, id);
          } catch (error) {
            tried.push(error);
          }
        }
        ended.resolve();
        return "done";
      });
      const error = await work.catch((reason: unknown) => reason);
      expect(isDatabaseUnavailable(error)).toBe(true);
      await ended.promise;
      expect(tried.map(isDatabaseUnavailable)).toEqual([true, true]);
      expect(await stored()).toEqual([]);
    });

    test("is not reported as committed if no statement followed the loss", async () => {
      const work = db.transaction(async (tx) => {
        await insert(tx, 1);
        await terminate(tx);
        return "done";
      });
      const error = await work.catch((reason: unknown) => reason);
      expect(isDatabaseUnavailable(error)).toBe(true);
      expect(await stored()).toEqual([]);
    });

    test("leaves its place to others, who are on a connection that works", async () => {
      for (let round = 0; round < 2 * max; round += 1) {
        const lost = db.transaction(async (tx) => {
          await terminate(tx);
          await insert(tx, 100 + round);
        });
        await expect(lost).rejects.toBeDefined();
      }
      await waitFor(async () => {
        await admin`delete from public.entries`;
        const ids = Array.from({ length: 3 * max }, (_, id) => id);
        await Promise.all(ids.map((id) => db.transaction((tx) => insert(tx, id))));
        expect(await stored()).toEqual(ids);
      });
    });
  });

  test("those that wait for a lock are run again as a whole, and leave places to others meanwhile", async () => {
    await admin`insert into public.entries values (1)`;
    const release = Promise.withResolvers<void>();
    const locked = Promise.withResolvers<void>();
    const holder = rerunning.transaction(async (tx) => {
      await tx.execute(sql`update public.entries set id = 2 where id = 1`);
      locked.resolve();
      await release.promise;
    });
    await locked.promise;
    const runs: number[] = [];
    const waiting = Array.from({ length: 2 * max }, (_, index) =>
      rerunning.transaction(async (tx) => {
        runs[index] = (runs[index] ?? 0) + 1;
        await insert(tx, 10 + index);
        await tx.execute(sql`update public.entries set id = id where id <= 2`);
        return index;
      }),
    );
    // One after the other finds that it has to wait.
    await waitFor(() => expect(runs.filter((count) => count > 0)).toHaveLength(2 * max));
    const started = performance.now();
    await rerunning.transaction((tx) => insert(tx, 9));
    // One that waited for a lock would keep its place for two seconds.
    expect(performance.now() - started).toBeLessThan(1_500);
    release.resolve();
    await holder;
    const all = Array.from({ length: 2 * max }, (_, index) => index);
    expect(await Promise.all(waiting)).toEqual(all);
    expect(await stored()).toEqual([2, 9, ...all.map((index) => 10 + index)]);
    expect(Math.max(...runs)).toBe(2);
  });

  test("one that waits too long for a connection is refused, and never begun afterwards", async () => {
    const release = Promise.withResolvers<void>();
    const taken = Array.from({ length: max }, () => db.transaction(() => release.promise));
    const late = db.transaction((tx) => insert(tx, 7)).catch((error: unknown) => error);
    expect(isDatabaseUnavailable(await late)).toBe(true);
    release.resolve();
    await Promise.all(taken);
    await db.transaction((tx) => insert(tx, 8));
    expect(await stored()).toEqual([8]);
  });

  test("one that is run again waits no longer for connections, in all, than one that is not", async () => {
    await admin`insert into public.entries values (1)`;
    const release = Promise.withResolvers<void>();
    const takePlaces = (until: Promise<void>) =>
      Array.from({ length: max }, () => rerunning.transaction(() => until));
    try {
      await admin.begin(async (lock) => {
        await lock`update public.entries set id = 1`;
        const first = Promise.withResolvers<void>();
        const taken = takePlaces(first.promise);
        const began = performance.now();
        const late = rerunning
          .transaction((tx) => tx.execute(sql`update public.entries set id = 2`))
          .catch((error: unknown) => error);
        await setTimeout(2_500);
        // They wait behind it, and have its place while it is run again.
        taken.push(...takePlaces(release.promise));
        first.resolve();
        expect(isDatabaseUnavailable(await late)).toBe(true);
        expect(performance.now() - began).toBeLessThan(5_500);
        release.resolve();
        await Promise.all(taken);
      });
    } finally {
      release.resolve();
    }
  });

  test("one whose connection is half-open holds its locks for a few seconds only", async () => {
    if (settings.kind !== "postgres") throw new Error("not PostgreSQL");
    const wire = await openDatabaseWire("127.0.0.1", settings.hosts[0]?.port ?? 0);
    const stranded = await open({ hosts: [{ host: "127.0.0.1", port: wire.port }] });
    await admin`insert into public.entries values (1)`;
    const given = stranded.db.transaction(async (tx) => {
      await tx.execute(sql`update public.entries set id = 2`);
      wire.strand();
      await tx.execute(sql`select 1`);
    });
    // The process learns nothing, and gives up; PostgreSQL learns not even that.
    await expect(given).rejects.toSatisfy(isDatabaseUnavailable);
    await waitFor(() => db.execute(sql`update public.entries set id = 3`));
    expect(await stored()).toEqual([3]);
    await wire.close();
  }, 30_000);
});
