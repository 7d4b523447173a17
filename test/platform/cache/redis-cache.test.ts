/** The cache on a real server, which is killed, frozen, emptied, filled, demoted, and asks for a password over TLS. */
import { afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  type Cache,
  CacheAwayError,
  type CacheOptions,
  unlessAway,
} from "../../../src/platform/cache/cache.ts";
import type { CacheSettings } from "../../../src/platform/cache/cache-settings.ts";
import { openCache } from "../../../src/platform/cache/open-cache.ts";
import { captureLog } from "../../support/captured-log.ts";
import { findRedis, patientMs, type Redis, startRedis } from "../../support/redis.ts";
import { closedPort } from "../../support/servers.ts";
import { stopwatch } from "../../support/stopwatch.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

const increment = 'return redis.call("INCRBY", KEYS[1], ARGV[1])';

describe.skipIf(findRedis() === undefined)("the cache", () => {
  let redis: Redis;
  const opened: Cache[] = [];
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    redis = await startRedis();
    cleanup.defer(() => redis.stop());
  });
  beforeEach(() => redis.restart());
  afterEach(async () => {
    await Promise.all(opened.splice(0).map((cache) => cache.close()));
  });

  async function open(
    settings: Partial<CacheSettings> = {},
    responses: Pick<CacheOptions, "responseMs"> = { responseMs: patientMs },
  ) {
    const log = captureLog();
    let isUsable: boolean | undefined;
    const cache = await openCache({
      settings: { ...redis.settings, ...settings },
      prefix: "shop:",
      name: "test",
      whileAway: "it is done without it",
      rehearse: async () => undefined,
      logger: log.logger,
      observer: {
        usable(value) {
          isUsable = value;
        },
      },
      ...responses,
    });
    opened.push(cache);
    const add = (by = 1) => cache.run(increment, ["n"], [by]);
    return {
      cache,
      add,
      isUsable: () => isUsable,
      warnings: () => log.lines().filter(({ level }) => level === "warn"),
      text: log.text,
      /** What the log says last of why it cannot be used. */
      reason: () => log.lines().findLast(({ reason }) => reason !== undefined)?.["reason"],
      whenUsable: () => waitFor(() => expect(isUsable).toBe(true)),
      whenAway: () => waitFor(() => expect(isUsable).toBe(false)),
    };
  }

  test("runs scripts from the first call on, with the prefix before every key", async () => {
    const { add, isUsable, text } = await open();
    expect(isUsable()).toBe(true);
    expect([await add(), await add(5)]).toEqual([1, 6]);
    expect(await redis.command("GET", "shop:n")).toBe("6");
    expect(text()).toBe("");
  });

  test("runs a script that the server has forgotten", async () => {
    const { add } = await open();
    await add();
    await redis.command("SCRIPT", "FLUSH");
    await redis.command("FLUSHALL");
    expect(await add()).toBe(1);
  });

  test("signs in over TLS, and not with a wrong password or to a server that nobody vouches for", async () => {
    const secure = await startRedis({ isSecure: true, password: "s3cret" });
    await using _stop = { [Symbol.asyncDispose]: () => secure.stop() };
    expect(await (await open(secure.settings)).add()).toBe(1);
    for (const wrong of [{ password: "wr0ng" }, { ca: undefined }]) {
      const { add, isUsable, warnings, text } = await open({ ...secure.settings, ...wrong });
      expect(isUsable()).toBe(false);
      await expect(add()).rejects.toBeInstanceOf(CacheAwayError);
      expect(warnings()).toHaveLength(1);
      expect(text()).not.toMatch(/s3cret|wr0ng/);
    }
  });

  test("is away where nothing listens, says so once, and is used as soon as something does", async () => {
    await redis.kill();
    const { add, isUsable, warnings, whenUsable, text } = await open();
    expect(isUsable()).toBe(false);
    await expect(add()).rejects.toBeInstanceOf(CacheAwayError);
    expect(await unlessAway(add, async () => "other")).toBe("other");
    await redis.restart();
    await whenUsable();
    expect(await add()).toBe(1);
    expect(warnings()).toEqual([
      expect.objectContaining({
        msg: "The cache cannot be used; it is done without it. Trying again every second.",
      }),
    ]);
    expect(text()).toContain("The cache is used again");
  });

  test("is away at once when the server is killed, also for who waits, and back when it is", async () => {
    const { add, whenAway, whenUsable, reason } = await open();
    await whenUsable();
    const waiting = Promise.allSettled([add()]);
    await redis.kill();
    await waiting;
    await whenAway();
    // It has seen that the connection ended, and has not waited for a response.
    expect(reason()).toMatch(/closed|ECONNRESET|EPIPE/);
    await expect(add()).rejects.toBeInstanceOf(CacheAwayError);
    await redis.restart();
    await whenUsable();
    expect(await add()).toBe(1);
  });

  test("keeps nobody waiting for a server that stands still: 250 ms, unless something else is set", async () => {
    // Nothing is set. On a busy machine it may be away for a moment before.
    const { add, isUsable, whenUsable, reason } = await open({}, {});
    await whenUsable();
    redis.freeze();
    const took = stopwatch();
    const results = await Promise.allSettled(Array.from({ length: 100 }, () => add()));
    expect(new Set(results.map(({ status }) => status))).toEqual(new Set(["rejected"]));
    expect(isUsable()).toBe(false);
    expect(reason()).toBe("no response within 250 ms");
    expect(took()).toBeLessThan(1_000);
    redis.thaw();
    await whenUsable();
    await waitFor(async () => expect(await add()).toBeGreaterThan(0));
  });

  test.each<[string, string[][], string[][], RegExp]>([
    [
      "that has become a replica",
      [["REPLICAOF", "127.0.0.1", String(closedPort)]],
      [["REPLICAOF", "NO", "ONE"]],
      /READONLY|it is a replica/,
    ],
    ["that is full", [["CONFIG", "SET", "maxmemory", "1"]], [["CONFIG", "SET", "maxmemory", "0"]], /^OOM/],
    [
      "that makes room by forgetting",
      [
        ["CONFIG", "SET", "maxmemory", "100mb"],
        ["CONFIG", "SET", "maxmemory-policy", "volatile-lru"],
      ],
      [["CONFIG", "SET", "maxmemory-policy", "noeviction"]],
      /maxmemory-policy is volatile-lru/,
    ],
  ])("does not use a server %s", async (_what, breaking, mending, why) => {
    const { add, whenAway, whenUsable, reason } = await open();
    await add();
    for (const words of breaking) await redis.command(...words);
    await whenAway();
    await expect(add()).rejects.toBeInstanceOf(CacheAwayError);
    expect(reason()).toMatch(why);
    for (const words of mending) await redis.command(...words);
    await whenUsable();
    expect(await add()).toBe(2);
  });

  test("is away after a script that fails, and others of that moment go the other way too", async () => {
    const { cache, add, whenUsable } = await open();
    const failing = cache.run("return nonsense()", [], []);
    const other = unlessAway(add, async () => "other");
    await expect(failing).rejects.toBeInstanceOf(CacheAwayError);
    expect([1, "other"]).toContain(await other);
    await whenUsable();
    await add();
  });

  test("ends with the process, whether it is there or not", async () => {
    const { cache } = await open();
    await cache.close();
    await redis.kill();
    const { cache: away } = await open();
    await away.close();
    opened.length = 0;
  });
});
