/** The counters of attempts, in the database and in the cache: what counts, what is taken back, and what is stored. */
import { createHash } from "node:crypto";
import { setTimeout } from "node:timers/promises";
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  type AttemptCounters,
  type CountedAttempt,
  createKeyOf,
} from "../../../src/auth/limits/attempt-counters.ts";
import { createCacheCounters, rehearseCounting } from "../../../src/auth/limits/cache-counters.ts";
import { createDatabaseCounters } from "../../../src/auth/limits/database-counters.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import { openCache } from "../../../src/platform/cache/open-cache.ts";
import { captureLog } from "../../support/captured-log.ts";
import { findRedis, patientMs, startRedis } from "../../support/redis.ts";
import { rows } from "../../support/rows.ts";
import { type Backend, backends } from "../../support/servers.ts";
import { createMigratedServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

/** What keeps counters, and how a test looks into it. */
interface Keeper {
  counters(issuer: string): AttemptCounters;
  empty(): Promise<unknown>;
  keys(): Promise<readonly string[]>;
  points(): Promise<readonly number[]>;
  /** Lets all windows end in so many seconds; in none, they have ended. */
  endWindows(seconds?: number): Promise<unknown>;
  /** Differs after each write, and after each lock that was taken. */
  version(): Promise<unknown>;
}

async function databaseKeeper(backend: Backend, cleanup: AsyncDisposableStack): Promise<Keeper> {
  const own = await createMigratedServiceDatabase(backend, authMigrations);
  cleanup.defer(() => own.drop());
  const database = await own.open();
  const { db } = database;
  return {
    counters: (issuer) => createDatabaseCounters(db, createKeyOf(issuer)),
    empty: () => db.execute(sql`delete from auth.attempts`),
    keys: async () =>
      (await rows<{ key: string }>(db, sql`select key from auth.attempts`)).map(({ key }) => key),
    points: async () =>
      (await rows<{ points: number }>(db, sql`select points from auth.attempts`)).map(({ points }) => points),
    endWindows: (seconds = 0) =>
      db.execute(
        sql`update auth.attempts set expire = now() + ${seconds}::int * interval '1 second' - interval '1 millisecond'`,
      ),
    // Every version of a row has a place of its own: one that was neither written nor locked has the same.
    version: () => rows(db, sql`select ctid::text, xmin::text, xmax::text from auth.attempts order by key`),
  };
}

async function cacheKeeper(cleanup: AsyncDisposableStack): Promise<Keeper> {
  const redis = await startRedis();
  cleanup.defer(() => redis.stop());
  const cache = await openCache({
    settings: redis.settings,
    prefix: "test:",
    name: "test",
    whileAway: "the test fails",
    rehearse: rehearseCounting,
    responseMs: patientMs,
    logger: captureLog().logger,
    observer: { usable: () => undefined },
  });
  cleanup.defer(() => cache.close());
  const keys = async () => Object.values(Object(await redis.command("KEYS", "test:*:*"))).map(String);
  return {
    counters: (issuer) => createCacheCounters(cache, createKeyOf(issuer)),
    empty: () => redis.command("FLUSHALL"),
    keys,
    points: async () =>
      Promise.all((await keys()).map(async (key) => Number(await redis.command("HGET", key, "count")))),
    endWindows: async (seconds = 0) => {
      for (const key of await keys()) await redis.command("PEXPIRE", key, String(seconds * 1000 - 1));
    },
    version: async () => {
      const all = (await keys()).sort();
      return Promise.all(
        all.map(async (key) => [
          key,
          await redis.command("DUMP", key),
          await redis.command("PEXPIRETIME", key),
        ]),
      );
    },
  };
}

type MakeKeeper = (cleanup: AsyncDisposableStack) => Promise<Keeper>;

const keepers: [string, MakeKeeper][] = backends.map((backend) => [
  backend,
  (cleanup) => databaseKeeper(backend, cleanup),
]);
if (findRedis() !== undefined) keepers.push(["Redis", cacheKeeper]);

describe.each(keepers)("counters on %s", (_name, makeKeeper) => {
  let keeper: Keeper;
  let counters: AttemptCounters;
  const rule = { name: "code", failures: 3, windowSeconds: 300 };
  const wide = { name: "client", failures: 5, windowSeconds: 60 };
  const somebody = { rule, subject: "somebody" };
  const client = { rule: wide, subject: "an app" };
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    keeper = await makeKeeper(cleanup);
    counters = keeper.counters("https://issuer");
  });
  beforeEach(async () => void (await keeper.empty()));

  async function counted(counter: typeof somebody): Promise<CountedAttempt> {
    return (await counters.count(counter)) ?? expect.fail("the counter is full");
  }
  async function fill(counter: typeof somebody): Promise<void> {
    for (let n = 1; n <= counter.rule.failures; n += 1) expect((await counted(counter)).count).toBe(n);
  }

  test("count up to the limit, take back, and forget", async () => {
    await counted(somebody);
    const second = await counted(somebody);
    expect(second.count).toBe(2);
    await second.withdraw();
    expect((await counted(somebody)).count).toBe(2);
    expect((await counted(somebody)).count).toBe(3);
    expect(await counters.count(somebody)).toBeUndefined();
    await counters.clear([somebody]);
    expect((await counted(somebody)).count).toBe(1);
  });

  test("say how long a full one stays full", async () => {
    await fill(somebody);
    const [full, ...others] = await counters.full([client, somebody]);
    expect([full?.counter, others]).toEqual([somebody, []]);
    expect(full?.waitSeconds).toBeGreaterThan(200);
    // Its end is stored rounded to a millisecond.
    expect(full?.waitSeconds).toBeLessThanOrEqual(300.001);
  });

  test("write and lock nothing for a look, nor for an attempt that is refused", async () => {
    await fill(somebody);
    const before = await keeper.version();
    expect(await counters.full([somebody, client])).toHaveLength(1);
    const refused = await Promise.all(Array.from({ length: 20 }, () => counters.count(somebody)));
    expect(refused).toEqual(refused.map(() => undefined));
    expect(await keeper.version()).toEqual(before);
  });

  test("are not outrun by 50 attempts at once, each of which has its number", async () => {
    const results = await Promise.all(Array.from({ length: 50 }, () => counters.count(somebody)));
    expect(results.flatMap((result) => result?.count ?? []).sort()).toEqual([1, 2, 3]);
    expect(await keeper.points()).toEqual([rule.failures]);
  });

  test("take back as many as are taken back at once", async () => {
    const attempts = await Promise.all(Array.from({ length: 5 }, () => counted(client)));
    await Promise.all(attempts.slice(1).map((attempt) => attempt.withdraw()));
    expect(await keeper.points()).toEqual([1]);
  });

  test("are full no longer than their window and a little, where the clock was set back", async () => {
    await fill(somebody);
    await keeper.endWindows(rule.windowSeconds + 30);
    expect(await counters.full([somebody])).toHaveLength(1);
    expect(await counters.count(somebody)).toBeUndefined();
    await keeper.endWindows(3600);
    const [full] = await counters.full([somebody]);
    expect(full?.waitSeconds ?? 0).toBeLessThanOrEqual(rule.windowSeconds);
  });

  test("begin a new window once the old one has ended", async () => {
    await fill(somebody);
    await keeper.endWindows();
    await fill(somebody);
    expect(await counters.count(somebody)).toBeUndefined();
  });

  test("take nothing back in another window than the attempt's, however many are taken back", async () => {
    const attempts = [await counted(somebody), await counted(somebody), await counted(somebody)];
    await keeper.endWindows();
    // Windows are known by their ends, in whole milliseconds: the next one has another end.
    await setTimeout(5);
    await Promise.all(attempts.map((attempt) => attempt.withdraw()));
    await fill(somebody);
    await Promise.all(attempts.map((attempt) => attempt.withdraw()));
    expect(await counters.count(somebody)).toBeUndefined();
    expect(await keeper.points()).toEqual([rule.failures]);
  });

  test("never go below zero", async () => {
    const attempt = await counted(somebody);
    for (let n = 0; n < 3; n += 1) await attempt.withdraw();
    expect(await keeper.points()).toEqual([0]);
  });

  test("have keys that spell out no account, and are apart for each issuer", async () => {
    const phone = "+12025550123";
    const byPhone = { rule, subject: phone };
    await counted(byPhone);
    const [key = ""] = await keeper.keys();
    for (const text of [phone, phone.slice(1), `${rule.name}:${phone}`, `${rule.name}${phone}`]) {
      expect(key).not.toContain(text);
      const digest = createHash("sha256").update(text).digest();
      for (const form of ["hex", "base64", "base64url"] as const) {
        expect(key).not.toContain(digest.toString(form));
      }
    }
    await counted(byPhone);
    expect(await keeper.keys()).toEqual([key]);
    await keeper.counters("https://another").count(byPhone);
    expect(await keeper.keys()).toHaveLength(2);
  });
});
