/** The limit on saving devices where processes count together: on a real Redis, by its clock. */
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { systemClock } from "../../../src/platform/base/clock.ts";
import { openCache } from "../../../src/platform/cache/open-cache.ts";
import {
  type SaveRate,
  saveRateOfProcess,
  sharedSaveRate,
  verifySaveCommands,
} from "../../../src/push/devices/save-rate.ts";
import { captureLog } from "../../support/captured-log.ts";
import { findRedis, patientMs, type Redis, startRedis } from "../../support/redis.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

describe.skipIf(findRedis() === undefined)("a shared limit on saving", () => {
  let redis: Redis;
  /** Two processes. */
  let rates: readonly [SaveRate, SaveRate];
  const perMinute = 6;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    redis = await startRedis();
    cleanup.defer(() => redis.stop());
    rates = [await process(), await process()];
  });
  beforeEach(async () => void (await redis.command("FLUSHALL")));

  async function process(): Promise<SaveRate> {
    const cache = await openCache({
      settings: redis.settings,
      prefix: "test:",
      name: "test",
      whileAway: "each counts by itself",
      rehearse: verifySaveCommands,
      responseMs: patientMs,
      logger: captureLog().logger,
      observer: { usable: () => undefined },
    });
    cleanup.defer(() => cache.close());
    return sharedSaveRate(cache, perMinute, saveRateOfProcess(perMinute, systemClock));
  }

  /** @returns how many of them were allowed */
  async function take(count: number, userId = "anna"): Promise<number> {
    const [one, other] = rates;
    const waits = await Promise.all(
      Array.from({ length: count }, (_, n) => (n % 2 === 0 ? one : other).take(userId)),
    );
    return waits.filter((wait) => wait === 0).length;
  }

  /** As if so much time had passed since. */
  async function pass(seconds: number): Promise<void> {
    const [key = ""] = Object.values(Object(await redis.command("KEYS", "test:saves:*"))).map(String);
    const fullAt = Number(await redis.command("GET", key));
    await redis.command("SET", key, String(fullAt - seconds * 1000), "KEEPTTL");
  }

  test("holds over processes, exactly, and for each user apart", async () => {
    expect(await take(50)).toBe(perMinute);
    expect(await take(50, "boris")).toBe(perMinute);
  });

  test("says how long to wait, and lets go on after it", async () => {
    await take(perMinute);
    const wait = await rates[0].take("anna");
    expect(wait).toBeGreaterThan(5_000);
    expect(wait).toBeLessThanOrEqual(10_000);
    await pass(10);
    expect(await take(10)).toBe(1);
    await pass(60);
    expect(await take(10)).toBe(perMinute);
  });

  test("writes nothing for a refusal, and keeps nothing that is over", async () => {
    await take(perMinute);
    const [key = ""] = Object.values(Object(await redis.command("KEYS", "test:saves:*"))).map(String);
    const before = await redis.command("GET", key);
    expect(await take(20)).toBe(0);
    expect(await redis.command("GET", key)).toBe(before);
    const left = Number(await redis.command("PTTL", key));
    expect(left).toBeGreaterThan(30_000);
    expect(left).toBeLessThanOrEqual(60_000);
  });

  test("locks nobody out whose clock was set back", async () => {
    await take(perMinute);
    await pass(-3600);
    expect(await rates[0].take("anna")).toBe(0);
  });

  test("is each process's own while the cache is away", async () => {
    await redis.kill();
    expect(await take(50)).toBe(2 * perMinute);
  });
});
