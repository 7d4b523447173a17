/** PostgreSQL ends connections while they are in use: the process survives, and no change is written partially. */
import { setTimeout } from "node:timers/promises";
import postgres from "postgres";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { type AuthApi, authApi, internal } from "../support/auth-api.ts";
import { eventsIn } from "../support/auth-fleet.ts";
import { type AuthProcess, spawnAuthServer } from "../support/auth-server.ts";
import { type AuthStore, createAuthStore } from "../support/auth-store.ts";
import { requiredPostgresUrl } from "../support/postgresql/server.ts";
import { backends } from "../support/servers.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { waitFor } from "../support/wait-for.ts";

/** Milliseconds for which connections are ended repeatedly. */
const storm = 4_000;
const loops = 4;

describe.runIf(backends.includes("PostgreSQL"))("where PostgreSQL ends connections", () => {
  let store: AuthStore;
  let server: AuthProcess;
  let api: AuthApi;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    store = await createAuthStore("PostgreSQL");
    cleanup.defer(() => store.drop());
    server = await spawnAuthServer("PostgreSQL", { env: store.env });
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
  });

  /**
   * Ends all connections of the server, once or repeatedly. The random pauses grow with time: on any machine some
   * connections are used before they are ended.
   * @param isOver called after each round with the number of connections ended so far; true is the last round
   */
  async function endConnections(isOver: (ended: number) => boolean): Promise<void> {
    const admin = postgres(requiredPostgresUrl().href, { max: 1, onnotice: () => undefined });
    let isFinished = false;
    onTestFinished(() => {
      isFinished = true;
    });
    const start = performance.now();
    const ended = new Set<number>();
    try {
      do {
        const rows = await admin`
          select pid, pg_terminate_backend(pid) from pg_stat_activity
          where datname = ${store.env["DB_NAME"] ?? ""} and application_name = 'gatepost'`;
        for (const { pid } of rows) ended.add(Number(pid));
        await setTimeout((Math.random() * (performance.now() - start)) / 20);
      } while (!isOver(ended.size) && !isFinished);
    } finally {
      await admin.end();
    }
  }

  test("a server that refuses the login is unavailable, and is used again once it takes it", async () => {
    const admin = postgres(requiredPostgresUrl().href, { max: 1, onnotice: () => undefined });
    const database = store.env["DB_NAME"] ?? "";
    const allowConnections = (isAllowed: boolean) =>
      admin.unsafe(`alter database ${database} allow_connections ${isAllowed}`);
    const ask = async () => (await api.call("getIdentity", { as: internal, path: { id: "nobody" } })).status;
    await allowConnections(false);
    try {
      await endConnections(() => true);
      const statuses = new Set<number>();
      await waitFor(async () => {
        statuses.add(await ask());
        expect(statuses).toContain(503);
      });
      for (const status of await Promise.all(Array.from({ length: 20 }, ask))) statuses.add(status);
      expect([...statuses].filter((status) => ![404, 503].includes(status))).toEqual([]);
    } finally {
      await allowConnections(true);
      await admin.end();
    }
    await waitFor(async () => expect(await ask()).toBe(404));
  });

  test("a server whose disk fails is unavailable", async () => {
    const { id } = await api.newIdentity();
    await store.read(async (query) => {
      await query(`create function public.fail() returns trigger language plpgsql as $$
        begin raise exception 'could not read block' using errcode = 'io_error'; end $$`);
      await query(
        "create trigger fail before update on auth.identities for each row execute function public.fail()",
      );
    });
    const { status } = await api.call("updateIdentity", {
      as: internal,
      path: { id },
      json: { metadata: {} },
    });
    await store.read((query) => query("drop trigger fail on auth.identities"));
    expect(status).toBe(503);
  });

  test("a change is done or refused as unavailable, the process goes on, and changes are done again", async () => {
    const users = await Promise.all(Array.from({ length: loops }, () => api.newIdentity()));
    const update = (id: string, json: object) =>
      api.call("updateIdentity", { as: internal, path: { id }, json });
    const until = Date.now() + storm;
    const statuses = new Set<number>();
    // On a busy machine it takes longer until so many connections were ended, one change was done and another failed.
    let isOver = false;
    await Promise.all([
      endConnections((ended) => {
        isOver = Date.now() >= until && ended > 20 && statuses.has(204) && statuses.has(503);
        return isOver;
      }),
      ...users.map(async ({ id }) => {
        for (let mark = 0; !isOver; mark += 1)
          statuses.add((await update(id, { metadata: { mark } })).status);
      }),
    ]);
    expect([...statuses].filter((status) => ![204, 503].includes(status))).toEqual([]);
    expect({ code: server.child.exitCode, signal: server.child.signalCode }).toEqual({
      code: null,
      signal: null,
    });

    for (const { id } of users) {
      await waitFor(async () => expect((await update(id, { metadata: { mark: -1 } })).status).toBe(204));
      const { body } = await api.call("getIdentity", { as: internal, path: { id } });
      expect(body).toMatchObject({ metadata: { mark: -1 } });
    }
  });

  test("each change has one event, and each event its change", async () => {
    const { id } = await api.newIdentity();
    // A trigger of this test notes the changes that PostgreSQL has committed.
    await store.read(async (query) => {
      await query("create table public.changes (mark int)");
      await query("grant insert on public.changes to public");
      await query("grant usage on schema public to public");
      await query(`create function public.note() returns trigger language plpgsql as $$
        begin insert into public.changes values ((new.metadata->>'mark')::int); return new; end $$`);
      await query(
        "create trigger note after update on auth.identities for each row execute function public.note()",
      );
    });
    const until = Date.now() + storm;
    const statuses: number[] = [];
    let isOver = false;
    await Promise.all([
      endConnections(() => {
        isOver = Date.now() >= until && statuses.includes(204) && statuses.includes(503);
        return isOver;
      }),
      ...Array.from({ length: loops }, async () => {
        while (!isOver) {
          const mark = statuses.push(0) - 1;
          const json = { metadata: { mark } };
          statuses[mark] = (await api.call("updateIdentity", { as: internal, path: { id }, json })).status;
        }
      }),
    ]);
    const changes = await store.read((query) => query("select mark from public.changes"));
    const committed = changes.map((change) => Number(change["mark"]));
    expect(new Set(committed).size).toBe(committed.length);
    expect(statuses.filter((status) => ![204, 503].includes(status))).toEqual([]);
    // A change that was committed while its connection ended got a 503 too: the server could not know.
    const done = [...statuses.keys()].filter((mark) => statuses[mark] === 204);
    expect(committed).toEqual(expect.arrayContaining(done));
    // Delivery is at least once: an event may arrive twice.
    const events = () =>
      new Set(
        eventsIn(server.logs())
          .filter(({ type, subject }) => type === "auth.identity.updated.v1" && subject === id)
          .map((event) => event.id),
      );
    await waitFor(() => expect(events().size).toBeGreaterThanOrEqual(committed.length));
    await waitFor(async () => {
      const left = await store.read((query) => query("select 1 from auth.outbox"));
      expect(left).toEqual([]);
    });
    expect(events().size).toBe(committed.length);
  });
});
