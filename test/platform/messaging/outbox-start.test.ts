/** Where looks into an outbox begin: past what was delivered, also while a snapshot is held, and before all that waits. */
import { type SQLWrapper, sql } from "drizzle-orm";
import postgres from "postgres";
import { beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { outbox, relayLeases } from "../../../src/auth/schema.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import type { Database, OpenDatabase } from "../../../src/platform/database/database.ts";
import type { CloudEvent } from "../../../src/platform/messaging/cloud-event.ts";
import { outboxBacklog } from "../../../src/platform/messaging/outbox.ts";
import { OutboxStart } from "../../../src/platform/messaging/outbox-start.ts";
import { oldestEvents } from "../../../src/platform/messaging/relay.ts";
import { startRelay } from "../../../src/platform/messaging/relay-loop.ts";
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
  const minuteMs = 60_000;
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
    for (let look = 0; look < 3; look += 1) {
      await start.look(db, outbox, []);
      later += minuteMs;
    }
    await start.look(db, outbox, []);
  }
  /** The position after the last one that was given. */
  async function nextPosition(): Promise<number> {
    const [last] = await admin`select last_value + 1 as position from auth.outbox_position_seq`;
    return Number(last?.["position"]);
  }
  /** A start that is past all events. */
  async function pastAll(): Promise<OutboxStart> {
    const start = new OutboxStart();
    await db.execute(insert("gone", 50));
    await db.execute(sql`delete from auth.outbox`);
    await settle(start);
    expect(start.position).toBe(await nextPosition());
    return start;
  }

  test("it passes what was delivered, and stays before what waits", async () => {
    const start = await pastAll();
    await db.execute(insert("waits"));
    const [waits] = await rows<{ position: string }>(db, sql`select position from auth.outbox`);
    await settle(start);
    expect(start.position).toBe(Number(waits?.position));
    await db.execute(sql`delete from auth.outbox`);
    await settle(start);
    expect(start.position).toBe(Number(waits?.position) + 1);
  });

  test("a transaction that commits within a minute is not passed", async () => {
    const start = await pastAll();
    const release = Promise.withResolvers<void>();
    const written = Promise.withResolvers<void>();
    const late = admin.begin(async (tx) => {
      await tx`insert into auth.outbox (id, type, subject, data, occurred_at)
        values (gen_random_uuid(), 't', 'late', '{}', now())`;
      written.resolve();
      await release.promise;
    });
    await written.promise;
    // Others are written meanwhile.
    for (let seconds = 0; seconds < 59; seconds += 1) {
      await db.execute(insert("gone"));
      await start.look(db, outbox, []);
      await db.execute(sql`delete from auth.outbox`);
      later += 1_000;
    }
    release.resolve();
    await late;
    expect(await subjectsFrom(start)).toEqual(["late"]);
    expect(await start.look(db, outbox, [])).toEqual({ isAny: true, parts: [0] });
  });

  test.each([
    ["what becomes visible later", async () => undefined],
    [
      "what is written where the sequence is behind it",
      async (position: number) =>
        void (await admin`
        select setval('auth.outbox_position_seq', ${position + 1_000}::bigint)`),
    ],
  ])("%s is found within a minute", async (_what, afterwards) => {
    const start = await pastAll();
    const position = (await nextPosition()) - 40;
    const putBack = db.execute.bind(
      db,
      sql`
      insert into auth.outbox (position, id, type, subject, data, occurred_at)
      values (${position}::bigint, gen_random_uuid(), 't', 'old', '{}', now())`,
    );
    await putBack();
    await afterwards(position);
    let looks = 0;
    const step = minuteMs / 10;
    do {
      looks += 1;
      later += step;
    } while (!(await start.look(db, outbox, [])).isAny);
    expect(looks).toBeLessThanOrEqual(10);
    expect(await subjectsFrom(start)).toEqual(["old"]);
  });

  test("a look that failed moves nothing", async () => {
    const start = await pastAll();
    const before = start.position;
    vi.spyOn(db, "execute").mockImplementationOnce(() => {
      throw new Error("the connection is lost");
    });
    await expect(start.look(db, outbox, [])).rejects.toThrow("the connection is lost");
    expect(start.position).toBe(before);
  });

  test("the parts are those in which events wait", async () => {
    const start = await pastAll();
    for (const subject of ["a", "b", "c"]) await db.execute(insert(subject));
    const [found] = await rows<{ parts: number[] }>(
      db,
      sql`select json_agg(distinct hashtext(subject) & 7) as parts from auth.outbox`,
    );
    const { parts } = await start.look(db, outbox, [], 8);
    expect(parts.toSorted()).toEqual(found?.parts.toSorted());
    expect(await start.look(db, outbox, [{ types: ["other"] }], 8)).toEqual({ isAny: true, parts: [] });
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
    const start = new OutboxStart();
    await settle(start);
    expect(start.position).toBe(await nextPosition());
    const subscribers = [{ deliver: (_: CloudEvent) => undefined, types: ["t"] }];
    const settings = {
      ...{ db, outbox, leases: relayLeases, source: "s", subscribers, start },
    };
    /** The statement that is executed. */
    async function executed(work: () => Promise<unknown>): Promise<SQLWrapper> {
      const execute = vi.spyOn(db, "execute");
      await work();
      const [[statement = ""] = []] = execute.mock.calls;
      execute.mockRestore();
      return typeof statement === "string" ? sql.raw(statement) : statement;
    }
    const looks = {
      "the look whether events wait": await executed(() => start.look(db, outbox, subscribers)),
      "the look in which parts": await executed(() => start.look(db, outbox, subscribers, 8)),
      "the backlog": await executed(() => outboxBacklog(db, outbox, subscribers, start.position)),
      "the oldest batch": oldestEvents(db, settings, 0),
      "the oldest batch of a part": oldestEvents(db, { ...settings, inParts: true }, 3),
    };
    for (const [name, look] of Object.entries(looks)) {
      const plan = await rows<{ "QUERY PLAN": string }>(
        db,
        sql`explain (analyze, buffers, timing off) ${look}`,
      );
      const lines = plan.map((line) => line["QUERY PLAN"]);
      const pages = /shared hit=(\d+)/.exec(lines.find((line) => line.includes("Buffers")) ?? "")?.[1];
      // All of them are some hundred pages of the index, and some thousand with the table.
      expect(Number(pages ?? 0), `${name}\n${lines.join("\n")}`).toBeLessThan(100);
    }
  });

  test("the running relay moves it, and delivers what comes", async () => {
    const start = new OutboxStart();
    const subjects: string[] = [];
    const relay = startRelay({
      ...{ db, outbox, leases: relayLeases, source: "s", start, intervalMs: 5 },
      subscribers: [{ deliver: ({ subject }) => void subjects.push(subject) }],
      logger: captureLog().logger,
    });
    await db.execute(insert("first", 3));
    await waitFor(() => {
      later += minuteMs;
      expect(start.position).toBeGreaterThan(0);
    });
    await db.execute(insert("second", 3));
    await waitFor(() => expect(subjects).toHaveLength(6));
    await relay.stop();
    expect(subjects).toEqual(["first", "first", "first", "second", "second", "second"]);
  });
});
