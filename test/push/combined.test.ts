/**
 * Both services in one process: what one says, the other hears, over their contracts and their events, whatever
 * dies in between.
 */
import { randomUUID } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import postgres from "postgres";
import { beforeAll, describe, expect, test } from "vitest";
import type { components } from "../../gen/openapi/push-orchestration.ts";
import { eventsIn } from "../support/auth-fleet.ts";
import { type DatabaseGate, openDatabaseGate } from "../support/database-gate.ts";
import { openFront } from "../support/front.ts";
import { createMigratedDatabase } from "../support/migrated-database.ts";
import { requiredPostgresUrl } from "../support/postgresql/server.ts";
import {
  type PushProcess,
  type PushServer,
  spawnPushServer,
  startPushServer,
} from "../support/push-server.ts";
import { backends, databaseEnvironment, type Environment } from "../support/servers.ts";
import { stopwatch } from "../support/stopwatch.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { waitFor } from "../support/wait-for.ts";

type Schemas = components["schemas"];

/** An offset that no other user of the test has; a notification to it reaches who is left there. */
const offset = 345;

async function call(server: PushServer, token: string, method: string, path: string, body?: object) {
  const answer = await fetch(`${server.base}/v1/pushprovider/${path}`, {
    method,
    headers: {
      authorization: `Bearer ${token}`,
      ...(body && { "content-type": "application/json", "barrier-user-utc-offset": String(offset) }),
    },
    ...(body && { body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
  return { headers: answer.headers, text };
}

async function register(server: PushServer, userId: string): Promise<void> {
  const expiration = new Date(Date.now() + 3_600_000).toISOString();
  const device = { token: `device-of-${userId}`, expiration };
  await call(server, await server.userToken(userId), "POST", "token", device);
}

/** Sends to the offset, and waits until it is done. */
async function send(server: PushServer): Promise<Schemas["NotificationProgress"]> {
  const token = await server.backofficeToken();
  const body = { title: "Hello", message: "How are you?", utcOffsets: [offset] };
  const id = (await call(server, token, "POST", "push", body)).headers.get("notification-id");
  return waitFor(async () => {
    const progress: Schemas["NotificationProgress"] = JSON.parse(
      (await call(server, token, "GET", `notifications/${id}`)).text,
    );
    expect(progress.state).toBe("COMPLETED");
    return progress;
  });
}

async function historyOf(server: PushServer, userId: string): Promise<number> {
  const page: Schemas["HistoryPage"] = JSON.parse(
    (await call(server, await server.userToken(userId), "GET", "notifications-history")).text,
  );
  return page.totalElements;
}

/** The identity is created again, as it has to be to ask. */
async function expectForgotten(server: PushServer, userId: string): Promise<void> {
  await waitFor(async () => expect(await historyOf(server, userId)).toBe(0));
  expect((await send(server)).planned).toBe(0);
}

describe.each(backends)("on %s", (backend) => {
  let server: PushServer;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    server = await startPushServer(backend);
    cleanup.defer(() => server.stop());
  });

  test("a notification goes from the back office to the device, and into the user's history", async () => {
    const userId = randomUUID();
    await register(server, userId);
    expect(await send(server)).toMatchObject({ recipients: 1, planned: 1, sent: 1, remaining: 0 });
    expect(await historyOf(server, userId)).toBe(1);
    const file = server.settings.push?.providers.outboxFile ?? "";
    expect(readFileSync(file, "utf8")).toContain(`device-of-${userId}`);
    await server.deleteIdentity(userId);
    await expectForgotten(server, userId);
  });

  test("who is deleted is forgotten, and nobody else", async () => {
    const [gone, stays] = [randomUUID(), randomUUID()];
    await register(server, gone);
    await register(server, stays);
    expect((await send(server)).planned).toBe(2);
    await server.deleteIdentity(gone);
    await waitFor(async () => expect(await historyOf(server, gone)).toBe(0));
    expect((await send(server)).planned).toBe(1);
    expect(await historyOf(server, stays)).toBe(2);
  });

  test("both have their documents, their reference, their health and their readiness", async () => {
    for (const base of [server.base, server.authBase]) {
      for (const path of ["/openapi.json", "/openapi.yaml", "/docs"]) {
        expect((await fetch(`${base}${path}`)).status, base + path).toBe(200);
      }
    }
    const ready = await fetch(`${server.management}/health/ready`);
    expect(await ready.json()).toEqual({ status: "up" });
    const metrics = await (await fetch(`${server.management}/metrics`)).text();
    for (const service of ["auth", "push"]) expect(metrics).toContain(`service="${service}"`);
  });
});

/** Kills that may come too late, one after the other. Where the relay is held none does. */
const lateKills = { PGlite: 20, PostgreSQL: 0 };

/** Keeps the relay of the auth service from looking: locks what one relay of the fleet writes in. */
async function holdRelay(env: Environment): Promise<AsyncDisposable> {
  const url = requiredPostgresUrl();
  url.pathname = `/${env["DB_NAME"]}`;
  const sql = postgres(url.href, { max: 1, onnotice: () => undefined });
  await sql.unsafe("begin; lock table auth.relay_leases in exclusive mode");
  return { [Symbol.asyncDispose]: () => sql.end({ timeout: 1 }) };
}

function isDelivered(server: PushServer, userId: string): boolean {
  return eventsIn(server.logs()).some(
    ({ type, subject }) => type === "auth.identity.deleted.v1" && subject === userId,
  );
}

describe.each(backends)("on %s, where the process is killed", (backend) => {
  test("after a deletion was answered and before push was told, it is told after the next start", async () => {
    await using started = new AsyncDisposableStack();
    const dataDir = mkdtempSync(join(tmpdir(), "gatepost-test-"));
    started.defer(() => rmSync(dataDir, { recursive: true, force: true }));
    const front = await openFront();
    started.defer(() => front.close());
    async function start(env: Environment): Promise<PushProcess> {
      const server = await spawnPushServer(backend, { env });
      started.defer(() => server.stop());
      front.leadTo(Number(new URL(server.origin).port));
      return server;
    }

    let server = await start({ DATA_DIR: dataDir, OAUTH_SERVER_ISSUER: `${front.origin}/api/auth` });
    const { env } = server;
    /** @returns whether the process was killed before the event was delivered */
    async function killBetween(): Promise<boolean> {
      const userId = randomUUID();
      await register(server, userId);
      expect((await send(server)).planned).toBe(1);
      // An embedded database has no such lock: there the kill has to be faster than the relay.
      const killed = server;
      {
        await using _held = backend === "PostgreSQL" ? await holdRelay(env) : undefined;
        await server.deleteIdentity(userId);
        await server.kill();
      }
      server = await start(env);
      await expectForgotten(server, userId);
      return !isDelivered(killed, userId);
    }
    for (let late = 0; !(await killBetween()); late += 1) {
      expect(late, "each kill came too late to show anything").toBeLessThan(lateKills[backend]);
    }
  });
});

describe.runIf(backends.includes("PostgreSQL"))("where the database of push hangs", () => {
  let gate: DatabaseGate;
  let server: PushServer;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const database = await createMigratedDatabase();
    cleanup.defer(() => database.drop());
    gate = await openDatabaseGate(database.host, database.port);
    cleanup.defer(() => gate.close());
    const env = Object.entries({
      ...databaseEnvironment(database),
      DB_HOST: "127.0.0.1",
      DB_PORT: String(gate.port),
    }).map(([name, value]) => [`PUSH_${name}`, value]);
    // The auth service is on its embedded database, with its one connection.
    server = await startPushServer("PGlite", { env: Object.fromEntries(env) });
    cleanup.defer(() => server.stop());
  });

  test("auth goes on as before, and what it has to tell is told when the database is back", async () => {
    const userId = randomUUID();
    await register(server, userId);
    expect((await send(server)).planned).toBe(1);
    const thaw = gate.freeze();
    await server.deleteIdentity(userId);
    const until = Date.now() + 7_000;
    let slowest = 0;
    const counted = stopwatch();
    while (Date.now() < until) {
      const started = counted();
      await server.userToken();
      slowest = Math.max(slowest, counted() - started);
      await setTimeout(20);
    }
    expect(slowest).toBeLessThan(3_000);
    thaw();
    await waitFor(async () => expect(await historyOf(server, userId)).toBe(0));
  });
});
