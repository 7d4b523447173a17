/** What waits in an outbox, told without counting it. */
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { outbox, relayLeases } from "../../../src/auth/schema.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import type { OpenDatabase } from "../../../src/platform/database/database.ts";
import { outboxBacklog } from "../../../src/platform/messaging/outbox.ts";
import { relayOnce } from "../../../src/platform/messaging/relay.ts";
import { captureLog } from "../../support/captured-log.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { createMigratedServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

describe.each(backends)("the backlog of an outbox on %s", (backend) => {
  let database: OpenDatabase;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const own = await createMigratedServiceDatabase(backend, authMigrations);
    cleanup.defer(() => own.drop());
    database = await own.open();
  });
  beforeEach(() => database.db.execute(sql`delete from auth.outbox`));

  const backlog = () => outboxBacklog(database.reads, outbox, [{ types: ["t"] }, {}], 0);
  /** What the events are about happened a week ago. */
  const write = (count: number, age = 0) =>
    database.db.execute(sql`
      insert into auth.outbox (id, type, subject, data, occurred_at, written_at)
      select gen_random_uuid(), 't', 's', '{}', now() - interval '7 days', now() - ${age}::int * interval '1 second'
      from generate_series(1, ${count}::int)`);

  test("is nothing where nothing waits", async () => {
    expect(await backlog()).toEqual({ events: 0, oldestSeconds: 0, unknown: 0 });
  });

  test("is the number of events and the age of the first, whenever that happened of which they tell", async () => {
    await write(1, 90);
    await write(40, 5);
    const { events, oldestSeconds } = await backlog();
    expect(events).toBe(41);
    expect(oldestSeconds).toBeGreaterThanOrEqual(90);
    expect(oldestSeconds).toBeLessThan(300);
  });

  test("an event is as old as it is written, unless it says otherwise", async () => {
    await database.db.execute(sql`
      insert into auth.outbox (id, type, subject, data, occurred_at)
      values (gen_random_uuid(), 't', 's', '{}', now() - interval '7 days')`);
    const { events, oldestSeconds } = await backlog();
    expect(events).toBe(1);
    expect(oldestSeconds).toBeLessThan(60);
  });

  test("has the events that nobody of this version can deliver, which are the oldest in the end", async () => {
    await write(3);
    await database.db.execute(sql`update auth.outbox set type = 'newer'`);
    await write(1_200);
    expect(await backlog()).toMatchObject({ events: 1_203, unknown: 3 });
    await database.db.execute(sql`update auth.outbox set type = 'newer'`);
    expect(await backlog()).toMatchObject({ events: 1_203, unknown: 1_000 });
  });

  test("gets smaller with each batch that is relayed", async () => {
    await write(250);
    const logger = captureLog().logger;
    const settings = { db: database.db, outbox, leases: relayLeases, source: "s", subscribers: [], logger };
    const seen = [];
    for (let round = 0; round < 3; round += 1) {
      await relayOnce(settings);
      seen.push((await backlog()).events);
    }
    expect(seen).toEqual([150, 50, 0]);
  });

  test("takes a look at either end and at the oldest thousand, however many events there are", async () => {
    await write(30_000);
    const execute = vi.spyOn(database.reads, "execute");
    expect((await backlog()).events).toBe(30_000);
    const [[statement = ""] = []] = execute.mock.calls;
    vi.restoreAllMocks();
    const plan = await rows<{ "QUERY PLAN": string }>(
      database.db,
      sql`explain (analyze, timing off) ${typeof statement === "string" ? sql.raw(statement) : statement}`,
    );
    const lines = plan.map((line) => line["QUERY PLAN"]);
    const numbers = lines.flatMap((line) =>
      [...line.matchAll(/actual rows=(\d+)/g)].map(([, n]) => Number(n)),
    );
    expect(numbers.length).toBeGreaterThan(3);
    expect(Math.max(...numbers), lines.join("\n")).toBe(1_000);
  });
});
