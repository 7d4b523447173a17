/** The rate limiter: its limit, its ramp, and the effect of failures. */
import { setTimeout } from "node:timers/promises";
import { sql } from "drizzle-orm";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { deliveryRules } from "../../../src/push/delivery/delivery-rules.ts";
import { endPauses, ProviderPauses } from "../../../src/push/delivery/provider-pauses.ts";
import { ProviderRateLimiter } from "../../../src/push/delivery/rate-limiter.ts";
import { Processes } from "../../../src/push/queue/processes.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { stopwatch } from "../../support/stopwatch.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";
import { createDeliveryTest, type DeliveryTest, recordingProvider } from "./delivery-fixture.ts";

/** What waits for a check of its notification, on a machine that has no time for it, goes out together afterwards. */
const rules = { maxUncheckedMs: Number.POSITIVE_INFINITY };

/** Most of the moments that lie within any `windowMs`. */
function most(moments: readonly number[], windowMs: number): number {
  const sorted = moments.toSorted((a, b) => a - b);
  let first = 0;
  return sorted.reduce((peak, at, index) => {
    while (at - (sorted[first] ?? 0) >= windowMs) first += 1;
    return Math.max(peak, index - first + 1);
  }, 0);
}

describe.each(backends)("the rate limiter on %s", (backend) => {
  let test: DeliveryTest;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    test = await createDeliveryTest(backend);
    cleanup.defer(() => test.close());
  });
  afterEach(async () => {
    await test.stopWorkers();
    await test.clearState();
  });

  function rateLimiterOf(settings: { maxPerSecond: number; rampSeconds?: number }): ProviderRateLimiter {
    const { db } = test;
    return new ProviderRateLimiter({
      db,
      provider: "fcm",
      rampSeconds: 0,
      rules: deliveryRules,
      ...settings,
    });
  }

  const pausesOf = () => {
    const [db, released] = [test.db, () => undefined];
    const processes = new Processes({ db, leases: db, logger: test.log.logger, released });
    const rest = { rules: deliveryRules, random: () => 0 };
    return new ProviderPauses({ ...{ db, provider: "fcm", processes, released }, ...rest });
  };
  const unavailable = (afterMs = 0) => ({ cause: "unavailable", afterMs, reason: "503" }) as const;

  it("stays under the ceiling over two workers, and near it", async () => {
    const [one, two] = [recordingProvider(), recordingProvider()];
    const planned = await test.plan({ devices: 1500, chunkSize: 150 });
    const settings = { maxPerSecond: 500 };
    const [began, counted] = [performance.now(), stopwatch()];
    test.startWorker({ providers: [one], settings, rules });
    test.startWorker({ providers: [two], settings, rules });
    await test.until(planned, ["DONE"]);
    const seconds = (performance.now() - began) / 1000;
    const held = seconds - counted() / 1000;
    const moments = [...one.sent, ...two.sent].map(({ at }) => at);
    expect(moments).toHaveLength(1500);
    expect(one.sent.length).toBeGreaterThan(300);
    expect(two.sent.length).toBeGreaterThan(300);
    // What was due while this process had no processor goes out together; each for itself they would send 1,000.
    expect(most(moments, 1000)).toBeLessThan(500 * (1.4 + held));
    expect(moments.length / seconds).toBeLessThan(500 * 1.05);
    expect(counted() / 1000).toBeLessThan(6);
  });

  it("spreads messages evenly instead of sending a second's worth at once", async () => {
    const provider = recordingProvider();
    const planned = await test.plan({ devices: 400 });
    const [began, counted] = [performance.now(), stopwatch()];
    test.startWorker({ providers: [provider], settings: { maxPerSecond: 400 }, rules });
    await test.until(planned, ["DONE"]);
    const held = (performance.now() - began - counted()) / 1000;
    const moments = provider.sent.map(({ at }) => at);
    expect(most(moments, 100)).toBeLessThan(150 + 400 * held);
  });

  it("begins slowly and reaches its full rate", async () => {
    const provider = recordingProvider();
    const planned = await test.plan({ devices: 1200 });
    test.startWorker({ providers: [provider], settings: { maxPerSecond: 500, rampSeconds: 4 }, rules });
    await test.until(planned, ["DONE"]);
    const first = provider.sent[0]?.at ?? 0;
    const inSecond = [0, 1, 2, 3].map(
      (second) => provider.sent.filter(({ at }) => Math.floor((at - first) / 1000) === second).length,
    );
    expect(inSecond[0]).toBeGreaterThan(10);
    expect(inSecond[0]).toBeLessThan(200);
    expect(inSecond[1]).toBeGreaterThan(inSecond[0] ?? 0);
    expect(inSecond[2]).toBeGreaterThan(inSecond[1] ?? 0);
  });

  it("gives each moment out once, however many ask", async () => {
    const limiter = rateLimiterOf({ maxPerSecond: 1000 });
    await limiter.reserve(1, 0);
    // What is reserved begins half a minute from now, however long the statements themselves take.
    const begin = sql`date_trunc('second', now()) + interval '30 seconds'`;
    const [begun] = await rows<{ at: number }>(
      test.db,
      sql`update push.provider_states set next_at = ${begin} returning extract(epoch from next_at)::float8 as at`,
    );
    const reservations = await Promise.all(Array.from({ length: 20 }, () => limiter.reserve(100, 0)));
    for (const reservation of reservations) expect(reservation).toMatchObject({ messages: 100 });
    // 20 windows of 100 ms one after the other.
    const [ended] = await rows<{ at: number }>(
      test.db,
      sql`select extract(epoch from next_at)::float8 as at from push.provider_states`,
    );
    expect((ended?.at ?? 0) - (begun?.at ?? 0)).toBeCloseTo(2, 3);
  });

  // The embedded database runs one transaction at a time: nothing waits for its row.
  it.runIf(backend === "PostgreSQL")("gives out no moment that passed while it waited", async () => {
    const limiter = rateLimiterOf({ maxPerSecond: 100 });
    await limiter.reserve(1, 0);
    const other = await test.database.open();
    let reserving: ReturnType<typeof limiter.reserve> | undefined;
    await other.db.transaction(async (tx) => {
      await tx.execute(sql`select 1 from push.provider_states for update`);
      reserving = limiter.reserve(10, 0);
      await waitFor(async () => {
        const waiting = sql`select 1 as one from pg_stat_activity
          where datname = current_database() and wait_event_type = 'Lock'`;
        expect(await rows(tx, waiting)).toHaveLength(1);
      });
      await setTimeout(800);
    });
    const { endMs } = (await reserving) ?? {};
    const ahead = sql`(extract(epoch from next_at - clock_timestamp()) * 1000)::float8 as ahead`;
    const [row] = await rows<{ ahead: number }>(test.db, sql`select ${ahead} from push.provider_states`);
    // Others get what comes after these 100 ms.
    expect(row?.ahead).toBeGreaterThan(-500);
    expect(endMs).toBeCloseTo(100, -1.3);
  });

  it("gives no more out at once than a slice of time holds, and something however slow it is", async () => {
    expect(await rateLimiterOf({ maxPerSecond: 100 }).reserve(1000, 0)).toMatchObject({ messages: 50 });
    await test.clearState();
    const slow = await rateLimiterOf({ maxPerSecond: 10, rampSeconds: 60 }).reserve(1000, Date.now());
    expect(slow).toMatchObject({ messages: 1 });
    expect(slow.endMs).toBeLessThan(2_500);
  });

  it("goes on after the database's clock was set back", async () => {
    const limiter = rateLimiterOf({ maxPerSecond: 100 });
    await limiter.reserve(10, 0);
    await test.db.execute(sql`update push.provider_states set next_at = now() + interval '1 hour'`);
    expect((await limiter.reserve(10, 0)).endMs).toBeLessThan(1_000);
  });

  it("ends a pause that was written before the database's clock was set back", async () => {
    await pausesOf().record("", unavailable());
    await test.db.execute(sql`update push.provider_states set paused_until = now() + interval '2 days'`);
    expect((await pausesOf().load()).get("")?.pausedMs).toBe(0);
    const planned = await test.plan({ devices: 1 });
    test.startWorker({ providers: [recordingProvider()] });
    expect(await test.until(planned, ["DONE"])).toMatchObject([{ sent: 1 }]);
  });

  it("pauses longer with each failure in a row, counting what fails together once", async () => {
    const pauses = pausesOf();
    const [first, ...others] = await Promise.all(
      Array.from({ length: 5 }, () => pauses.record("", unavailable())),
    );
    const all = [first, ...others];
    expect(all.filter((pause) => pause?.isNew)).toHaveLength(1);
    expect(all.every((pause) => pause?.failures === 1)).toBe(true);
    // The column is rounded to milliseconds, up as well.
    expect(Math.max(...all.map((pause) => pause?.pausedMs ?? 0))).toBeLessThanOrEqual(5_001);
    expect(new Set(all.map((pause) => pause?.since)).size).toBe(1);
    // A second ago: "now", rounded up, may be ahead of the next statement.
    const over = () =>
      test.db.execute(sql`update push.provider_states set paused_until = now() - interval '1 second'`);
    const lengths: number[] = [];
    for (let failure = 2; failure <= 9; failure += 1) {
      await over();
      lengths.push(Math.round(((await pauses.record("", unavailable()))?.pausedMs ?? 0) / 1000));
    }
    expect(lengths).toEqual([10, 20, 40, 80, 160, 300, 300, 300]);
    await over();
    expect((await pauses.record("", unavailable(400_000)))?.pausedMs).toBe(400_000);
    const [row] = await rows<{ share: number }>(test.db, sql`select share from push.provider_states`);
    expect(row?.share).toBeCloseTo(0.1);
  });

  it("pauses longer for one user's failures too, though never for long", async () => {
    const pauses = pausesOf();
    const lengths: number[] = [];
    for (let failure = 1; failure <= 6; failure += 1) {
      await test.db.execute(sql`update push.provider_states set paused_until = now() - interval '1 second'`);
      const pause = await pauses.record("", { ...unavailable(), isDoubtful: true });
      lengths.push(Math.round((pause?.pausedMs ?? 0) / 1000));
    }
    expect(lengths).toEqual([5, 10, 20, 40, 60, 60]);
  });

  it("is a success that ends failures, not one that was on its way before the pause", async () => {
    const limiter = rateLimiterOf({ maxPerSecond: 100 });
    const pauses = pausesOf();
    await pauses.record("", unavailable());
    expect(await pauses.recordSuccess("")).toBe(false);
    expect((await pauses.load()).get("")?.pausedMs).toBeGreaterThan(0);
    // A second ago, so that a clock that is set back a little does not begin the pause again.
    await test.db.execute(sql`update push.provider_states set paused_until = now() - interval '1 second'`);
    expect(await pauses.recordSuccess("")).toBe(true);
    expect(await pauses.recordSuccess("")).toBe(false);
    // Half of the ceiling, a tenth more with each good chunk.
    expect(await limiter.reserve(1000, 0)).toMatchObject({ messages: 25 });
    await limiter.raiseRate();
    expect(await limiter.reserve(1000, 0)).toMatchObject({ messages: 30 });
    for (let times = 0; times < 6; times += 1) await limiter.raiseRate();
    expect(await limiter.reserve(1000, 0)).toMatchObject({ messages: 50 });
  });

  it("keeps the pauses of a provider's services apart, and ends those that an operator names", async () => {
    const pauses = pausesOf();
    const states = async () =>
      [...(await pauses.load())]
        .toSorted()
        .map(([service, { cause, pausedMs }]) => [service, cause, pausedMs > 0]);
    await pauses.record("https://one.example", unavailable());
    await pauses.record("https://two.example", { cause: "foreign", afterMs: 0, reason: "403" });
    expect(await states()).toEqual([
      ["https://one.example", "unavailable", true],
      ["https://two.example", "foreign", true],
    ]);
    const { db } = test;
    expect(await endPauses(db, "fcm", "https://two.example")).toBe(1);
    expect(await endPauses(db, "fcm", "https://two.example")).toBe(0);
    // Not open yet: its first messages show whether it works.
    expect(await states()).toEqual([
      ["https://one.example", "unavailable", true],
      ["https://two.example", "foreign", false],
    ]);
    expect(await endPauses(db, "fcm")).toBe(1);
  });

  it("ends a pause for refused credentials when a self-test passes, and no other", async () => {
    const pauses = pausesOf();
    await pauses.record("", { cause: "foreign", afterMs: 0, reason: "403 SENDER_ID_MISMATCH" });
    expect(await pauses.endRefusal()).toBe(false);
    await test.clearState();
    await pauses.record("", { cause: "refused", afterMs: 0, reason: "401" });
    expect(await pauses.endRefusal()).toBe(true);
    expect(await pauses.load()).toEqual(
      new Map([["", { cause: undefined, pausedMs: 0, since: expect.any(String) }]]),
    );
  });
});
