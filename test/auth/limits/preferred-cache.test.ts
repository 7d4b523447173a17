/** Guesses that are counted in the cache, and what is left of the limits while it is away. */
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { guessingRules } from "../../../src/auth/limits/guessing.ts";
import { type AuthApi, authApi, internal } from "../../support/auth-api.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { findRedis, type Redis, startRedis } from "../../support/redis.ts";
import { scrape, valuesOf } from "../../support/scrape.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";
import { guessesAt, oneByOne, repeat, statuses } from "./guessing-fixture.ts";

const { failures } = guessingRules.password;

describe.skipIf(findRedis() === undefined)("with a cache, guessing", () => {
  let redis: Redis;
  let server: AuthServer;
  let api: AuthApi;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    redis = await startRedis();
    cleanup.defer(() => redis.stop());
    server = await startAuthServer("PGlite", { env: { ...redis.env } });
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
  });
  beforeEach(async () => {
    redis.thaw();
    await whenUsable(1);
  });

  const { guess, someone } = guessesAt(() => api);
  const guesses = async (id: string, count: number) =>
    statuses(await oneByOne(Array(count), () => guess(id)));
  const whenUsable = (value: 0 | 1) =>
    waitFor(async () =>
      expect(valuesOf(await scrape(server.management), "gatepost_cache_usable")).toEqual([value]),
    );
  async function expectServed(): Promise<void> {
    expect((await fetch(`${server.management}/health/ready`)).status).toBe(200);
    const { id } = await api.newIdentity();
    const { access_token } = await api.newPair(id);
    expect(await api.introspect(access_token)).toMatchObject({ active: true });
    await api.call("deleteIdentity", { as: internal, path: { id } });
    expect(await api.introspect(access_token)).toEqual({ active: false });
  }

  test("is counted there, and its keys disclose nobody and expire", async () => {
    // On a busy machine a response may come too late, and the guess is counted in the database.
    await waitFor(async () => {
      await redis.command("FLUSHALL");
      const { id } = await someone();
      expect(await guesses(id, failures)).toEqual(repeat(failures, 400));
      const refused = await guess(id);
      expect(refused.status).toBe(429);
      expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(200);
      const keys = Object.values(Object(await redis.command("KEYS", "gatepost:auth:password:*"))).map(String);
      expect(keys).toHaveLength(1);
      expect(keys.join()).not.toContain(id);
      expect(await redis.command("PTTL", keys[0] ?? "")).toBeGreaterThan(200_000);
    }, 1_000);
  });

  test("begins anew with a new password and with a new identity, though nothing in it is removed", async () => {
    // As above: each guess is to be counted there.
    await waitFor(async () => {
      await redis.command("FLUSHALL");
      const { id, phone } = await someone();
      expect(await guesses(id, failures)).toEqual(repeat(failures, 400));
      expect((await guess(id, "right horse")).status).toBe(429);
      const setPassword = (password: string) =>
        api.call("setIdentityPassword", { as: internal, path: { id }, json: { password } });
      await setPassword("another horse");
      expect(await guesses(id, failures)).toEqual(repeat(failures, 400));
      expect((await guess(id, "another horse")).status).toBe(429);
      await api.call("deleteIdentity", { as: internal, path: { id } });
      await api.newIdentity({ id, phone });
      await setPassword("another horse");
      expect(await guesses(id, 1)).toEqual([400]);
      const keys = Object.values(Object(await redis.command("KEYS", "gatepost:auth:password:*")));
      expect(keys).toHaveLength(3);
      expect((await guess(id, "another horse")).status).toBe(200);
    }, 1_000);
  });

  test("goes on being limited while it is away, and the rest is served", async () => {
    const { id } = await someone();
    expect(await guesses(id, 4)).toEqual(repeat(4, 400));
    redis.freeze();
    // The first one finds out.
    expect(await guesses(id, failures)).toEqual(repeat(failures, 400));
    expect((await guess(id)).status).toBe(429);
    await expectServed();
    redis.thaw();
    await whenUsable(1);
    // The guess that found out may have been counted there as well, when the server went on.
    const judged = (await guesses(id, failures)).filter((status) => status === 400).length;
    expect([failures - 5, failures - 4]).toContain(judged);
    // Coming and going, it gives nobody more.
    await redis.kill();
    await whenUsable(0);
    expect((await guess(id)).status).toBe(429);
    // What it has lost costs one further window.
    await redis.restart();
    await whenUsable(1);
    expect(await guesses(id, failures)).toEqual(repeat(failures, 400));
    expect((await guess(id)).status).toBe(429);
  });

  test("is unlocked wherever it was counted", async () => {
    const { id } = await someone();
    await guesses(id, failures);
    redis.freeze();
    await guesses(id, failures);
    expect((await guess(id)).status).toBe(429);
    redis.thaw();
    await whenUsable(1);
    expect((await guess(id, "right horse")).status).toBe(429);
    const unlocked = await api.call("clearIdentityAttempts", { as: internal, path: { id } });
    expect(unlocked.status).toBe(204);
    expect((await guess(id)).status).toBe(400);
    redis.freeze();
    expect((await guess(id, "right horse")).status).toBe(200);
  });
});
