/** Where looks into an outbox begin: past what was delivered, also while a snapshot is held, and before all that waits. */
import { sql } from "drizzle-orm";
import postgres from "postgres";
import { beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { outbox, relayLeases } from "../../../src/auth/schema.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import type { Database, OpenDatabase } from "../../../src/platform/database/database.ts";
import type { CloudEvent } from "../../../src/platform/messaging/cloud-event.ts";
import { outboxBacklog } from "../../../src/platform/messaging/outbox.ts";
import { OutboxStart } from "../../../src/platform/messaging/outbox-start.ts";
import { relayOnce, startRelay } from "../../../src/platform/messaging/relay.ts";
import { captureLog } from "../../support/captured-log.ts";
import { requiredPostgresUrl } from "../../support/postgresql/server.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { createMigratedServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

describe.runIf(backends.includes("PostgreSQL"))("where looks into an outbox begin", () => {
  let database: OpenDatabase;
  let db: Database;
  let admin: postgres.Sql;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const own = await createMigratedServiceDatabase("PostgreSQL", authMigrations);
    cleanup.defer(() => own.drop());
    database = await own.open();
    ({ db } = database);
    const url = requiredPostgresUrl();
    url.pathname = `/${own.settings.kind === "postgres" ? own.settings.name : ""}`;
    admin = postgres(url.href, { max: 3, onnotice: () => undefined });
    cleanup.defer(() => admin.end({ timeout: 1 }));
  });
  let later = 0;
  /** Milliseconds between full looks: so many that none comes by itself, however long a start is waited for. */
  const fullLookMs = 1_000_000_000;
  beforeEach(async () => {
    await db.execute(sql`delete from auth.outbox`);
    const now = performance.now.bind(performance);
    later = 0;
    vi.spyOn(performance, "now").mockImplementation(() => now() + later);
    return () => vi.restoreAllMocks();
  });

  const insert = (subject: string, count = 1) => sql`
    insert into auth.outbox (id, type, subject, data, occurred_at)
    select gen_random_uuid(), 't', ${subject}::text, '{}', now() from generate_series(1, ${count}::int)`;
  const subjectsFrom = async (start: OutboxStart) =>
    (
      await rows<{ subject: string }>(
        db,
        sql`select subject from auth.outbox where position >= ${start.position}::bigint order by position`,
      )
    ).map(({ subject }) => subject);
  /** Looks so often, and so long after each other, that the start is where it can be. */
  async function settle(start: OutboxStart): Promise<void> {
    for (let look = 0; look < 6; look += 1) {
      await start.look(db, outbox, []);
      later += 4_000;
    }
  }

  /**
   * Looks until the start has moved up to the position. Transactions of other tests on the same server may hold it back
   * for a while.
   */
  async function reach(start: OutboxStart, position: number): Promise<void> {
    await waitFor(async () => {
      await settle(start);
      expect(start.position).toBe(position);
    });
  }
  /** The position after the last one that was given. */
  async function nextPosition(): Promise<number> {
    const [last] = await admin`select last_value + 1 as position from auth.outbox_position_seq`;
    return Number(last?.["position"]);
  }

  test("it passes what was delivered, and stays before what waits", async () => {
    const start = new OutboxStart(fullLookMs);
    await db.execute(insert("gone", 50));
    await db.execute(sql`delete from auth.outbox`);
    await db.execute(insert("waits"));
    const [waits] = await rows<{ position: string }>(db, sql`select position from auth.outbox`);
    await reach(start, Number(waits?.position));
    await db.execute(sql`delete from auth.outbox`);
    await reach(start, Number(waits?.position) + 1);
  });

  test("a transaction that took a low position long ago and commits late is before it", async () => {
    const start = new OutboxStart(fullLookMs);
    const release = Promise.withResolvers<void>();
    const written = Promise.withResolvers<void>();
    const late = admin.begin(async (tx) => {
      await tx`insert into auth.outbox (id, type, subject, data, occurred_at)
        values (gen_random_uuid(), 't', 'late', '{}', now())`;
      written.resolve();
      await release.promise;
    });
    await written.promise;
    // Nothing else is written meanwhile, so no transaction with a higher number ends.
    await settle(start);
    await settle(start);
    release.resolve();
    await late;
    expect(await subjectsFrom(start)).toEqual(["late"]);
    expect(await start.look(db, outbox, [])).toEqual({ isAny: true, isAnyKnown: true });
  });

  test("a position of a transaction that has no number yet is not passed before it has had the time to get one", async () => {
    const start = new OutboxStart(fullLookMs);
    await db.execute(insert("gone", 50));
    await db.execute(sql`delete from auth.outbox`);
    await reach(start, await nextPosition());
    // One in 32 positions is written to the log, for which its transaction gets a number.
    const isNextLogged = async () =>
      (await admin`select 1 from auth.outbox_position_seq where log_cnt = 0`).length > 0;
    while (await isNextLogged()) await admin`select nextval('auth.outbox_position_seq')`;
    const taken = Promise.withResolvers<void>();
    const release = Promise.withResolvers<void>();
    const late = admin.begin(async (tx) => {
      const [position] = await tx`select nextval('auth.outbox_position_seq') as taken`;
      taken.resolve();
      await release.promise;
      await tx`insert into auth.outbox (position, id, type, subject, data, occurred_at)
        values (${position?.["taken"]}, gen_random_uuid(), 't', 'late', '{}', now())`;
    });
    await taken.promise;
    for (let look = 0; look < 6; look += 1) {
      await start.look(db, outbox, []);
      later += 400;
    }
    release.resolve();
    await late;
    expect(await subjectsFrom(start)).toEqual(["late"]);
  });

  test("an event that is put back at an old position is found by a full look, and at once after it is forgotten", async () => {
    const start = new OutboxStart(fullLookMs);
    await db.execute(insert("old"));
    const kept = await rows<{ position: string }>(db, sql`delete from auth.outbox returning position`);
    await reach(start, await nextPosition());
    const putBack = () =>
      db.execute(sql`
        insert into auth.outbox (position, id, type, subject, data, occurred_at)
        values (${kept[0]?.position}::bigint, gen_random_uuid(), 't', 'old', '{}', now())`);
    await putBack();
    expect(await start.look(db, outbox, [])).toEqual({ isAny: false, isAnyKnown: false });
    later += fullLookMs;
    expect(await start.look(db, outbox, [])).toEqual({ isAny: true, isAnyKnown: true });
    expect(await subjectsFrom(start)).toEqual(["old"]);
    await db.execute(sql`delete from auth.outbox`);
    await reach(start, await nextPosition());
    await putBack();
    expect(await subjectsFrom(start)).toEqual([]);
    start.forget();
    expect(await subjectsFrom(start)).toEqual(["old"]);
  });

  test("it is forgotten where the sequence is behind it, or the server is another one, and not after a look that failed", async () => {
    const start = new OutboxStart(fullLookMs);
    await db.execute(insert("gone", 50));
    await db.execute(sql`delete from auth.outbox`);
    const before = await nextPosition();
    await reach(start, before);
    await admin`select setval('auth.outbox_position_seq', ${before - 40}::bigint)`;
    await start.look(db, outbox, []);
    expect(start.position).toBe(0);
    await admin`select setval('auth.outbox_position_seq', ${before}::bigint)`;
    await reach(start, before + 1);
    vi.spyOn(db, "execute").mockImplementationOnce(() => {
      throw new Error("the connection is lost");
    });
    await expect(start.look(db, outbox, [])).rejects.toThrow("the connection is lost");
    expect(start.position).toBe(before + 1);
    const other = await createMigratedServiceDatabase("PGlite", authMigrations);
    cleanup.defer(() => other.drop());
    await start.look((await other.open()).db, outbox, []);
    expect(start.position).toBe(0);
  });

  test("while a snapshot is held, what was delivered is not walked through again and again", async () => {
    const begun = Promise.withResolvers<void>();
    const release = Promise.withResolvers<void>();
    const dump = admin.begin("isolation level repeatable read", async (tx) => {
      await tx`select count(*) from auth.outbox`;
      begun.resolve();
      await release.promise;
    });
    await begun.promise;
    onTestFinished(async () => {
      release.resolve();
      await dump;
    });
    await db.execute(insert("gone", 30_000));
    await db.execute(sql`delete from auth.outbox`);
    // As autovacuum does before long.
    await admin`analyze auth.outbox`;
    const start = new OutboxStart(fullLookMs);
    await reach(start, await nextPosition());
    const subscribers = [{ deliver: (_: CloudEvent) => undefined, types: ["t"] }];
    const settings = {
      ...{ db, outbox, leases: relayLeases, source: "s", subscribers, start },
      logger: captureLog().logger,
    };
    const looks = {
      "the look whether events wait": () => start.look(db, outbox, subscribers),
      "the backlog": () => outboxBacklog(db, outbox, subscribers, start.position),
      "the oldest batch": () => relayOnce({ ...settings, isOnlyProcess: true }),
      "the oldest batch of a part": () => relayOnce({ ...settings, isOnlyProcess: true, inParts: true }, 3),
    };
    for (const [name, look] of Object.entries(looks)) {
      const execute = vi.spyOn(db, "execute");
      await look();
      const [[statement = ""] = []] = execute.mock.calls;
      execute.mockRestore();
      const plan = await rows<{ "QUERY PLAN": string }>(
        db,
        sql`explain (analyze, buffers, timing off) ${typeof statement === "string" ? sql.raw(statement) : statement}`,
      );
      const lines = plan.map((line) => line["QUERY PLAN"]);
      const pages = /shared hit=(\d+)/.exec(lines.find((line) => line.includes("Buffers")) ?? "")?.[1];
      // All of them are some hundred pages of the index, and some thousand with the table.
      expect(Number(pages ?? 0), `${name}\n${lines.join("\n")}`).toBeLessThan(100);
    }
  });

  test("the running relay moves it, and delivers what comes", async () => {
    const start = new OutboxStart(fullLookMs);
    const subjects: string[] = [];
    const relay = startRelay({
      ...{ db, outbox, leases: relayLeases, source: "s", start, intervalMs: 5 },
      subscribers: [{ deliver: ({ subject }) => void subjects.push(subject) }],
      logger: captureLog().logger,
    });
    await db.execute(insert("first", 3));
    await waitFor(() => {
      later += 1_000;
      expect(start.position).toBeGreaterThan(0);
    });
    await db.execute(insert("second", 3));
    await waitFor(() => expect(subjects).toHaveLength(6));
    await relay.stop();
    expect(subjects).toEqual(["first", "first", "first", "second", "second", "second"]);
  });
});
