/** The counters of attempts in the database: what counts, on which clock, what is taken back, and what is stored. */
import { createHash } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  type AttemptCounters,
  type CountedAttempt,
  createAttemptCounters,
  isFull,
} from "../../../src/auth/limits/attempt-counters.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import type { OpenDatabase } from "../../../src/platform/database/database.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { createServiceDatabase, type ServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

describe.each(backends)("counters on %s", (backend) => {
  let own: ServiceDatabase;
  let database: OpenDatabase;
  let counters: AttemptCounters;
  const rule = { name: "code", failures: 3, windowSeconds: 300 };
  const wide = { name: "client", failures: 5, windowSeconds: 60 };
  const somebody = { rule, subject: "somebody" };
  const client = { rule: wide, subject: "an app" };
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    own = await createServiceDatabase(backend, authMigrations);
    cleanup.defer(() => own.drop());
    database = await own.open();
    await database.migrate();
    counters = createAttemptCounters(database.db, "a secret of the settings");
  });
  beforeEach(async () => void (await database.db.execute(sql`delete from auth.attempts`)));

  const keys = async () =>
    (await rows<{ key: string }>(database.db, sql`select key from auth.attempts`)).map(({ key }) => key);
  const points = async () =>
    (await rows<{ points: number }>(database.db, sql`select points from auth.attempts`)).map(
      (row) => row.points,
    );
  const endWindows = () =>
    database.db.execute(sql`update auth.attempts set expire = now() - interval '1 millisecond'`);
  /** Every version of a row has a place of its own: a row that was neither written nor locked has the same. */
  const versions = () =>
    rows(database.db, sql`select ctid::text, xmin::text, xmax::text from auth.attempts order by key`);

  async function counted(counter: typeof somebody): Promise<CountedAttempt> {
    const result = await counters.begin(counter);
    return isFull(result) ? expect.fail("the counter is full") : result;
  }
  async function fill(counter: typeof somebody): Promise<void> {
    for (let n = 1; n <= counter.rule.failures; n += 1) expect((await counted(counter)).count).toBe(n);
  }

  test("count up to the limit, take back, and forget", async () => {
    await counted(somebody);
    const second = await counted(somebody);
    expect(second.count).toBe(2);
    await counters.withdraw(second);
    expect((await counted(somebody)).count).toBe(2);
    expect((await counted(somebody)).count).toBe(3);
    expect(await counters.begin(somebody)).toMatchObject({ counter: somebody });
    await counters.clear([somebody]);
    expect((await counted(somebody)).count).toBe(1);
  });

  test("say how long a full one stays full", async () => {
    await fill(somebody);
    const full = await counters.begin(somebody);
    const waitSeconds = isFull(full) ? full.waitSeconds : expect.fail("not full");
    expect(waitSeconds).toBeGreaterThan(200);
    expect(waitSeconds).toBeLessThanOrEqual(300);
  });

  test("write and lock nothing for an attempt that is refused", async () => {
    await fill(somebody);
    const before = await versions();
    const refused = await Promise.all(Array.from({ length: 20 }, () => counters.begin(somebody)));
    expect(refused.every(isFull)).toBe(true);
    expect(await versions()).toEqual(before);
  });

  test("count nothing where another counter is full, and name that one", async () => {
    await fill(client);
    expect(await counters.begin(somebody, [client])).toMatchObject({ counter: client });
    expect(await points()).toEqual([wide.failures]);
    await fill(somebody);
  });

  test("are not outrun by 50 attempts at once", async () => {
    const results = await Promise.all(Array.from({ length: 50 }, () => counters.begin(somebody)));
    expect(results.filter((result) => !isFull(result))).toHaveLength(rule.failures);
    expect(await points()).toEqual([rule.failures]);
  });

  test("begin a new window once the old one has ended", async () => {
    await fill(somebody);
    await endWindows();
    await fill(somebody);
    expect(isFull(await counters.begin(somebody))).toBe(true);
  });

  test("take nothing back in another window than the attempt's, however many are taken back", async () => {
    const attempts = [await counted(somebody), await counted(somebody), await counted(somebody)];
    await endWindows();
    await Promise.all(attempts.map((attempt) => counters.withdraw(attempt)));
    await fill(somebody);
    await Promise.all(attempts.map((attempt) => counters.withdraw(attempt)));
    expect(isFull(await counters.begin(somebody))).toBe(true);
    expect(await points()).toEqual([rule.failures]);
  });

  test("never go below zero", async () => {
    const attempt = await counted(somebody);
    for (let n = 0; n < 3; n += 1) await counters.withdraw(attempt);
    expect(await points()).toEqual([0]);
  });

  test("have keys that disclose no account without the secret", async () => {
    const phone = "+12025550123";
    const byPhone = { rule, subject: phone };
    await counted(byPhone);
    const [key = ""] = await keys();
    for (const text of [phone, phone.slice(1), `${rule.name}:${phone}`, `${rule.name}${phone}`]) {
      expect(key).not.toContain(text);
      const digest = createHash("sha256").update(text).digest();
      for (const form of ["hex", "base64", "base64url"] as const) {
        expect(key).not.toContain(digest.toString(form));
      }
    }
    await counted(byPhone);
    expect(await keys()).toEqual([key]);
    await createAttemptCounters(database.db, "another secret").begin(byPhone);
    expect(await keys()).toHaveLength(2);
  });
});
