/**
 * A database that is slow, scarce or half gone is nobody else's trouble: connections heal by themselves, callers
 * share the few that there are, and a lock delays those alone who wait for it.
 */
import { randomBytes } from "node:crypto";
import { setTimeout } from "node:timers/promises";
import postgres from "postgres";
import { beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { type AuthApi, authApi, internal, mobileApp } from "../support/auth-api.ts";
import { type AuthServer, startAuthServer } from "../support/auth-server.ts";
import { type AuthStore, createAuthStore } from "../support/auth-store.ts";
import { freezeBackends } from "../support/postgresql/frozen-backends.ts";
import { requiredPostgresUrl } from "../support/postgresql/server.ts";
import { backends } from "../support/servers.ts";
import { stopwatch } from "../support/stopwatch.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { waitFor } from "../support/wait-for.ts";

/**
 * Expects that no call has waited for the locked rows: such a wait lasts two seconds, or until they are released.
 * @param times milliseconds of each call, by what was called
 * @param slowestMs of a call that the machine alone has delayed; a fourth of it was seen where both cores were busy
 */
function expectUnlocked(times: Readonly<Record<string, readonly number[]>>, slowestMs: number): void {
  for (const [name, each] of Object.entries(times)) {
    const sorted = each.toSorted((one, other) => one - other);
    expect(sorted[Math.floor(sorted.length / 2)], `the median of ${name}`).toBeLessThan(100);
    expect(sorted.at(-1), `the slowest of ${name}`).toBeLessThan(slowestMs);
  }
}

describe.runIf(backends.includes("PostgreSQL"))("under pressure", () => {
  let store: AuthStore;
  let admin: postgres.Sql;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    store = await createAuthStore("PostgreSQL");
    cleanup.defer(() => store.drop());
    const url = requiredPostgresUrl();
    url.pathname = `/${store.env["DB_NAME"]}`;
    admin = postgres(url.href, { max: 2, onnotice: () => undefined });
    cleanup.defer(() => admin.end({ timeout: 1 }));
  });

  interface Running {
    readonly server: AuthServer;
    readonly api: AuthApi;
    readonly stack: AsyncDisposableStack;
  }

  async function start(env: Record<string, string> = {}): Promise<Running> {
    await using stack = new AsyncDisposableStack();
    const server = await startAuthServer("PostgreSQL", { env: { ...store.env, ...env } });
    stack.defer(() => server.stop());
    return { server, api: authApi(server.base), stack: stack.move() };
  }

  const isReady = async ({ management }: AuthServer) => (await fetch(`${management}/health/ready`)).ok;

  /** Process ids of the server's connections. */
  const serverPids = async (user: string): Promise<number[]> =>
    (
      await admin`select pid from pg_stat_activity
        where datname = ${store.env["DB_NAME"] ?? ""} and usename = ${user} and application_name = 'gatepost'`
    ).map(({ pid }) => Number(pid));

  describe("where the server's connections freeze, and new ones work", () => {
    async function freeze(): Promise<void> {
      const pids = await serverPids(store.env["DB_USER"] ?? "");
      expect(pids.length).toBeGreaterThan(1);
      onTestFinished(await freezeBackends(pids));
    }
    let running: Running;
    beforeAll(async () => {
      running = await start();
      cleanup.defer(() => running.stack.disposeAsync());
    });

    test("everything is answered again within five seconds, at one request in nine", async () => {
      const { api, server } = running;
      const { id } = await api.newIdentity();
      const pairs = await Promise.all(Array.from({ length: 40 }, () => api.newPair(id)));
      await freeze();
      await setTimeout(5_000);
      const [pair] = pairs;
      for (let request = 0; request < 2; request += 1) {
        const asked = await api.call("introspectToken", {
          as: internal,
          form: { token: pair?.access_token ?? "" },
        });
        const issued = await api.call("generateTokens", {
          as: mobileApp,
          form: { grant_type: "auth", auth_id: id },
        });
        const changed = await api.call("updateIdentity", {
          as: internal,
          path: { id },
          json: { metadata: {} },
        });
        expect([asked.status, issued.status, changed.status]).toEqual([200, 200, 204]);
        expect(await isReady(server)).toBe(true);
        if (request === 0) await setTimeout(9_000);
      }
    });

    test("while they freeze, introspection is answered within about three seconds", async () => {
      const { api } = running;
      const { access_token } = await api.newPair((await api.newIdentity()).id);
      await freeze();
      const waited = stopwatch();
      const answers = await Promise.all(
        Array.from({ length: 20 }, async () => {
          const form = { token: access_token };
          const { status, headers } = await api.call("introspectToken", { as: internal, form });
          return { status, retryAfter: headers.has("retry-after") };
        }),
      );
      expect(waited()).toBeLessThan(4_000);
      for (const answer of answers) {
        expect(answer).toBeOneOf([
          { status: 503, retryAfter: true },
          { status: 200, retryAfter: false },
        ]);
      }
    });
  });

  describe("where the server's user may have five connections", () => {
    const user = `gatepost_scarce_${randomBytes(4).toString("hex")}`;
    let running: Running;
    beforeAll(async () => {
      await admin.unsafe(`create role ${user} login password 'scarce' connection limit 5`);
      await admin.unsafe(`grant connect on database ${store.env["DB_NAME"]} to ${user}`);
      running = await start({ DB_USER: user, DB_PASSWORD: "scarce" });
      cleanup.defer(async () => {
        await running.stack.disposeAsync();
        await admin.unsafe(`drop owned by ${user}`);
        await admin.unsafe(`drop role ${user}`);
      });
    });

    test("forty callers share them, and the server stays ready", async () => {
      const { api, server } = running;
      const { id } = await api.newIdentity();
      const until = Date.now() + 5_000;
      const statuses: Record<number, number> = {};
      let unready = 0;
      async function caller(): Promise<void> {
        while (Date.now() < until) {
          const issued = await api.token({ grant_type: "auth", auth_id: id });
          statuses[issued.status] = (statuses[issued.status] ?? 0) + 1;
          const changed = await api.call("updateIdentity", {
            as: internal,
            path: { id: (await api.newIdentity().catch(() => ({ id }))).id },
            json: { metadata: {} },
          });
          statuses[changed.status] = (statuses[changed.status] ?? 0) + 1;
        }
      }
      async function watch(): Promise<void> {
        while (Date.now() < until) {
          if (!(await isReady(server))) unready += 1;
          await setTimeout(100);
        }
      }
      await Promise.all([...Array.from({ length: 40 }, caller), watch()]);
      const all = Object.values(statuses).reduce((sum, count) => sum + count, 0);
      // On a machine that is busy with something else, one or the other may wait for too long.
      expect((statuses[200] ?? 0) + (statuses[204] ?? 0)).toBeGreaterThan(0.98 * all);
      expect(unready).toBe(0);
      const metrics = await (await fetch(`${server.management}/metrics`)).text();
      const values = (name: string) =>
        [...metrics.matchAll(new RegExp(`^gatepost_database_${name}\\{.*\\} (\\d+)$`, "gm"))].map(([, n]) =>
          Number(n),
        );
      const open = values("connections");
      // The last are for leases, of which auth has none here.
      expect(open).toEqual([expect.any(Number), expect.any(Number), 0]);
      expect(open[0]).toBeGreaterThan(0);
      expect(open[1]).toBeGreaterThan(0);
      expect((open[0] ?? 0) + (open[1] ?? 0)).toBeLessThanOrEqual(5);
      expect(values("waiting")).toEqual([0, 0, 0]);
      const failures = values("connect_failures_total")[0] ?? 0;
      // A few for each second, and not one for each request.
      expect(failures).toBeGreaterThan(0);
      expect(failures).toBeLessThan(30);
    });
  });

  describe.each([10, 40])("where %i requests wait for one locked identity", (count) => {
    let running: Running;
    let api: AuthApi;
    let locked: string;
    beforeEach(async () => {
      running = await start();
      api = running.api;
      locked = (await api.newIdentity()).id;
    });

    const waiters = {
      "that are to be changed": (id: string) =>
        api.call("updateIdentity", { as: internal, path: { id }, json: { metadata: {} } }),
      "that are to get tokens": (id: string) => api.token({ grant_type: "auth", auth_id: id }),
    };

    test.each(Object.entries(waiters))("%s, others are served", async (_, wait) => {
      await using _stop = running.stack;
      const { id } = await api.newIdentity();
      const { access_token } = await api.newPair(id);
      const release = Promise.withResolvers<void>();
      const isLocked = Promise.withResolvers<void>();
      const lock = admin.begin(async (tx) => {
        await tx`select id from auth.identities where id = ${locked} for update`;
        isLocked.resolve();
        await release.promise;
      });
      await isLocked.promise;
      const waiting = Promise.all(Array.from({ length: count }, async () => (await wait(locked)).status));
      const until = Date.now() + 4_000;
      const times: Record<"introspections" | "tokens" | "creations", number[]> = {
        introspections: [],
        tokens: [],
        creations: [],
      };
      let unready = 0;
      const clock = stopwatch();
      async function repeat(name: keyof typeof times, work: () => Promise<unknown>): Promise<void> {
        while (Date.now() < until) {
          const started = clock();
          await work();
          times[name].push(clock() - started);
          await setTimeout(20);
        }
      }
      await Promise.all([
        repeat("introspections", async () =>
          expect(await api.introspect(access_token)).toMatchObject({ active: true }),
        ),
        repeat("tokens", () => api.newPair(id)),
        repeat("creations", () => api.newIdentity()),
        (async () => {
          while (Date.now() < until) {
            if (!(await isReady(running.server))) unready += 1;
            await setTimeout(100);
          }
        })(),
      ]);
      release.resolve();
      await lock;
      const statuses = await waiting;
      expect(statuses.filter((status) => ![200, 204, 503].includes(status))).toEqual([]);
      expect(unready).toBe(0);
      const { introspections, ...writes } = times;
      expectUnlocked({ introspections }, 500);
      expectUnlocked(writes, 1_000);
      await waitFor(async () => expect((await wait(locked)).status).toBeLessThan(300));
    });
  });

  test("where ten identities are locked, and a change of each waits, others are changed at once", async () => {
    await using stack = new AsyncDisposableStack();
    const { api, stack: own } = await start();
    stack.use(own);
    const locked: string[] = [];
    for (let count = 0; count < 10; count += 1) locked.push((await api.newIdentity()).id);
    const { id } = await api.newIdentity();
    const change = (one: string) =>
      api.call("updateIdentity", { as: internal, path: { id: one }, json: { metadata: {} } });
    const release = Promise.withResolvers<void>();
    const isLocked = Promise.withResolvers<void>();
    const lock = admin.begin(async (tx) => {
      await tx`select id from auth.identities where id = any(${locked}) for update`;
      isLocked.resolve();
      await release.promise;
    });
    await isLocked.promise;
    const until = Date.now() + 5_000;
    const statuses = new Set<number>();
    const waiting = locked.map(async (one) => {
      while (Date.now() < until) statuses.add((await change(one)).status);
    });
    const times: Record<"changes" | "creations" | "deletions", number[]> = {
      changes: [],
      creations: [],
      deletions: [],
    };
    const clock = stopwatch();
    async function timed<T>(name: keyof typeof times, work: () => Promise<T>): Promise<T> {
      const started = clock();
      const result = await work();
      times[name].push(clock() - started);
      return result;
    }
    // Each of those that wait has been tried once by then.
    await setTimeout(300);
    while (Date.now() < until) {
      expect((await timed("changes", () => change(id))).status).toBe(204);
      const { id: other } = await timed("creations", () => api.newIdentity());
      const deleted = await timed("deletions", () =>
        api.call("deleteIdentity", { as: internal, path: { id: other } }),
      );
      expect(deleted.status).toBe(204);
      await setTimeout(50);
    }
    release.resolve();
    await lock;
    await Promise.all(waiting);
    expect([...statuses].filter((status) => ![204, 503].includes(status))).toEqual([]);
    expectUnlocked(times, 500);
    for (const one of locked) expect((await change(one)).status).toBe(204);
  });
});
