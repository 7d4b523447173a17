/** Counters in a Redis whose clock is set back, or whose user may not do all that they need. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Counter, createKeyOf } from "../../../src/auth/limits/attempt-counters.ts";
import { createCacheCounters, rehearseCounting } from "../../../src/auth/limits/cache-counters.ts";
import type { Cache } from "../../../src/platform/cache/cache.ts";
import { openCache } from "../../../src/platform/cache/open-cache.ts";
import { verifySaveCommands } from "../../../src/push/devices/save-rate.ts";
import { captureLog } from "../../support/captured-log.ts";
import { root } from "../../support/program.ts";
import { findRedis, patientMs, type Redis, startRedis } from "../../support/redis.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

/** The rules of the user that the documentation recommends: words such as `+hincrby`. */
const documented = /^user gatepost on >a-password (.+)$/m
  .exec(readFileSync(join(root, "docs/deployment.md"), "utf8"))?.[1]
  ?.split(" ");

describe.skipIf(findRedis() === undefined)("counters in Redis", () => {
  let redis: Redis;
  const opened: Cache[] = [];
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    redis = await startRedis();
    cleanup.defer(() => redis.stop());
  });
  beforeEach(async () => void (await redis.command("FLUSHALL")));
  afterEach(async () => {
    await Promise.all(opened.splice(0).map((cache) => cache.close()));
  });

  /** As auth and push use it, by one connection. */
  async function open(user?: { username: string; password: string }) {
    const log = captureLog();
    const usable: boolean[] = [];
    const cache = await openCache({
      settings: { ...redis.settings, ...user },
      prefix: "gatepost:test:",
      name: "gatepost-test",
      whileAway: "the test fails",
      rehearse: async (rehearsed) => {
        await rehearseCounting(rehearsed);
        await verifySaveCommands(rehearsed);
      },
      responseMs: patientMs,
      logger: log.logger,
      observer: { usable: (value) => usable.push(value) },
    });
    opened.push(cache);
    return {
      counters: createCacheCounters(cache, createKeyOf("https://issuer")),
      usable,
      warnings: () => log.lines().filter(({ level }) => level === "warn"),
    };
  }

  test("lock nobody out for longer than a window where the clock was set back", async () => {
    const { counters } = await open();
    const password = { rule: { name: "password", failures: 3, windowSeconds: 300 }, subject: "somebody" };
    const client = { rule: { name: "client", failures: 5, windowSeconds: 60 }, subject: "an app" };
    const fill = async (counter: Counter) => {
      while (await counters.count(counter));
    };
    await fill(password);
    await fill(client);
    // So it looks to a clock that was set back by an hour.
    for (const key of Object.values(Object(await redis.command("KEYS", "*"))).map(String)) {
      await redis.command("PEXPIRE", key, String(3_600_000 + Number(await redis.command("PTTL", key))));
    }
    const full = await counters.full([password, client]);
    expect(full.map(({ counter }) => counter)).toEqual([password, client]);
    for (const { counter, waitSeconds } of full)
      expect(waitSeconds).toBeLessThanOrEqual(counter.rule.windowSeconds);
  });

  test("lock nobody out for good where the end of a window was not set", async () => {
    const { counters } = await open();
    const password = { rule: { name: "password", failures: 3, windowSeconds: 300 }, subject: "somebody" };
    while (await counters.count(password));
    for (const key of Object.values(Object(await redis.command("KEYS", "*"))).map(String))
      await redis.command("PERSIST", key);
    const [full] = await counters.full([password]);
    expect(full?.waitSeconds).toBeGreaterThan(0);
    expect(full?.waitSeconds).toBeLessThanOrEqual(300);
  });

  test("are kept by the user that the documentation recommends, and not by one who may do less", async () => {
    const rights = documented ?? expect.fail("docs/deployment.md has no user");
    const commands = rights.filter((rule) => rule.startsWith("+"));
    expect(commands.length).toBeGreaterThan(10);
    const user = { username: "gatepost", password: "a-password" };
    const allow = (rules: readonly string[]) =>
      redis.command("ACL", "SETUSER", "gatepost", "reset", "on", ">a-password", ...rules);
    await allow(rights);
    // On a busy machine, to connect may take longer than its second: then it is opened again.
    await waitFor(async () => expect((await open(user)).usable.at(-1)).toBe(true));
    for (const missing of commands) {
      // Everybody may sign in, and the name is for operators.
      if (missing === "+auth" || missing === "+client|setname") continue;
      await allow(rights.filter((rule) => rule !== missing));
      await waitFor(async () => {
        await redis.command("SCRIPT", "FLUSH");
        const { usable, warnings } = await open(user);
        expect(usable, missing).not.toContain(true);
        expect(warnings(), missing).toHaveLength(1);
        expect(warnings()[0]?.["reason"], missing).toMatch(/^NOPERM|can't run this command/);
      });
    }
  });

  test("a right that is taken away ends their use once, until it is given back", async () => {
    const rights = documented ?? [];
    const user = { username: "gatepost", password: "a-password" };
    await redis.command("ACL", "SETUSER", "gatepost", "reset", "on", ">a-password", ...rights);
    const { counters, usable, warnings } = await open(user);
    const before = usable.length;
    await redis.command("ACL", "SETUSER", "gatepost", "-hincrby");
    const counter = { rule: { name: "password", failures: 3, windowSeconds: 300 }, subject: "somebody" };
    await expect(counters.count(counter)).rejects.toThrow();
    // Each of these is a connection on which it was tried.
    await waitFor(async () => {
      const denied = Object.values(Object(await redis.command("ACL", "LOG"))).map(String);
      expect(
        Math.max(...denied.map((entry) => Number(/^count,(\d+)/.exec(entry)?.[1] ?? 0))),
      ).toBeGreaterThan(3);
    });
    expect(usable.slice(before)).not.toContain(true);
    expect(warnings()).toHaveLength(1);
    await redis.command("ACL", "SETUSER", "gatepost", "+hincrby");
    await waitFor(() => expect(usable.at(-1)).toBe(true));
  });
});
