/**
 * Both services in one process: what one says, the other hears, over their contracts and their events, whatever
 * dies in between.
 */
import { randomUUID } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import type { components } from "../../gen/openapi/push-orchestration.ts";
import { eventsIn } from "../support/auth-fleet.ts";
import { createTestDatabase } from "../support/backends.ts";
import { type DatabaseGate, openDatabaseGate } from "../support/database-gate.ts";
import { openFront } from "../support/front.ts";
import {
  type PushProcess,
  type PushServer,
  spawnPushServer,
  startPushServer,
} from "../support/push-server.ts";
import { backends, databaseEnvironment } from "../support/servers.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";

type Schemas = components["schemas"];

/** An offset that no other user of the test has; a notification to it reaches who is left there. */
const offset = 345;
const soon = { timeout: 20_000, interval: 100 };

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
  return vi.waitFor(async () => {
    const progress: Schemas["NotificationProgress"] = JSON.parse(
      (await call(server, token, "GET", `notifications/${id}`)).text,
    );
    expect(progress.state).toBe("COMPLETED");
    return progress;
  }, soon);
}

async function historyOf(server: PushServer, userId: string): Promise<number> {
  const page: Schemas["HistoryPage"] = JSON.parse(
    (await call(server, await server.userToken(userId), "GET", "notifications-history")).text,
  );
  return page.totalElements;
}

/** The identity is created again, as it has to be to ask. */
async function expectForgotten(server: PushServer, userId: string): Promise<void> {
  await vi.waitFor(async () => expect(await historyOf(server, userId)).toBe(0), soon);
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
    await vi.waitFor(async () => expect(await historyOf(server, gone)).toBe(0), soon);
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

describe.each(backends)("on %s, where the process is killed", (backend) => {
  const directories: string[] = [];
  afterEach(() => {
    for (const directory of directories.splice(0)) rmSync(directory, { recursive: true, force: true });
  });

  // The relay may look in the very moment between answer and kill; then it is tried once more.
  const once = { retry: 2, timeout: 90_000 };
  test(
    "after a deletion was answered and before push was told, it is told after the next start",
    once,
    async () => {
      const dataDir = mkdtempSync(join(tmpdir(), "gatepost-test-"));
      directories.push(dataDir);
      const front = await openFront();
      const env = { DATA_DIR: dataDir, OAUTH_SERVER_ISSUER: `${front.origin}/api/auth` };
      const first = await spawnPushServer(backend, { env });
      front.leadTo(Number(new URL(first.origin).port));
      let second: PushProcess | undefined;
      try {
        const userId = randomUUID();
        await register(first, userId);
        expect((await send(first)).planned).toBe(1);
        await first.deleteIdentity(userId);
        await first.kill();
        const told = eventsIn(first.logs()).some(
          ({ type, subject }) => type === "auth.identity.deleted.v1" && subject === userId,
        );
        expect(told, "killed too late to show anything").toBe(false);
        second = await spawnPushServer(backend, { env: first.env });
        front.leadTo(Number(new URL(second.origin).port));
        await expectForgotten(second, userId);
      } finally {
        await second?.stop();
        await first.stop();
        await front.close();
      }
    },
  );
});

describe.runIf(backends.includes("PostgreSQL"))("where the database of push hangs", () => {
  let gate: DatabaseGate;
  let server: PushServer;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const database = await createTestDatabase();
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
    while (Date.now() < until) {
      const started = performance.now();
      await server.userToken();
      slowest = Math.max(slowest, performance.now() - started);
    }
    expect(slowest).toBeLessThan(3_000);
    thaw();
    await vi.waitFor(async () => expect(await historyOf(server, userId)).toBe(0), { timeout: 30_000 });
  }, 60_000);
});
