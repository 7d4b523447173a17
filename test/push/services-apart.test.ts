/**
 * Both services in servers of their own, with NATS between them: what one says, the other learns in the end, whatever
 * was away meanwhile.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { beforeAll, describe, expect, test } from "vitest";
import type { components } from "../../gen/openapi/push-orchestration.ts";
import { type AuthServer, startAuthServer } from "../support/auth-server.ts";
import { createMigratedDatabase } from "../support/migrated-database.ts";
import { findNats, type Nats, startNats } from "../support/nats.ts";
import { type PushServer, startPushApart } from "../support/push-server.ts";
import { backends, closedPort, databaseEnvironment } from "../support/servers.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { waitFor } from "../support/wait-for.ts";

/** The database that production has, where this machine has one. */
const backend = backends.at(-1) ?? "PGlite";

const isReady = async ({ management }: { management: string }) => {
  const response = await fetch(`${management}/health/ready`);
  return { status: response.status, text: await response.text() };
};

describe.skipIf(findNats() === undefined)("services apart, with NATS between them", () => {
  let nats: Nats;
  let auth: AuthServer;
  let push: PushServer;
  let env: Record<string, string>;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    nats = await startNats();
    cleanup.defer(() => nats.stop());
    const dataDir = mkdtempSync(join(tmpdir(), "gatepost-test-"));
    cleanup.defer(() => rmSync(dataDir, { recursive: true, force: true }));
    const broker = { BROKER_URL: nats.url };
    auth = await startAuthServer(backend, { env: broker });
    cleanup.defer(() => auth.stop());
    const own = backend === "PostgreSQL" ? await createMigratedDatabase() : undefined;
    if (own) cleanup.defer(() => own.drop());
    env = { ...broker, DATA_DIR: dataDir, ...(own && databaseEnvironment(own)) };
    push = await startPushApart(backend, auth, { env });
    cleanup.defer(() => push.stop());
  });

  async function call(token: string, method: string, path: string, body?: object): Promise<string> {
    const response = await fetch(`${push.base}/v1/pushprovider/${path}`, {
      method,
      headers: { authorization: `Bearer ${token}`, ...(body && { "content-type": "application/json" }) },
      ...(body && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text;
  }

  /** A user with a device and a notification. */
  async function addUser(id: string): Promise<void> {
    const token = await push.userToken(id);
    const expiration = new Date(Date.now() + 3_600_000).toISOString();
    await call(token, "POST", "token", { token: `device-of-${id}`, expiration });
    const send = { title: "Hello", message: "How are you?", utcOffsets: [0] };
    await call(await push.backofficeToken(), "POST", "push", send);
    await waitFor(async () => expect(await historyOf(id)).toBeGreaterThan(0));
  }

  async function historyOf(id: string): Promise<number> {
    const page: components["schemas"]["HistoryPage"] = JSON.parse(
      await call(await push.userToken(id), "GET", "notifications-history"),
    );
    return page.totalElements;
  }

  async function expectForgotten(id: string): Promise<void> {
    // The identity is created again, as it has to be to ask.
    await waitFor(async () => expect(await historyOf(id)).toBe(0));
    await waitFor(async () => expect(await lastRemoval(), push.logs().slice(-4_000)).toBe(id));
  }

  /** The user whose device was removed last, by the event that others may read; or why there is none. */
  async function lastRemoval(): Promise<string> {
    const connection = await connect({ servers: nats.url });
    try {
      const { streams } = await jetstreamManager(connection);
      const subject = "push.token.removed.v1";
      const found = await streams.getMessage("gatepost-push", { last_by_subj: subject });
      return decodeURIComponent(found?.header.get("ce-subject") ?? "");
    } catch (error) {
      return String(error);
    } finally {
      await connection.close();
    }
  }

  test("a deleted identity's devices and history go", async () => {
    await addUser("anna");
    await push.deleteIdentity("anna");
    await expectForgotten("anna");
    expect(auth.logs()).not.toContain("auth.identity.deleted.v1");
  });

  test("both stay ready while the broker is away, and the deletion arrives once it is back", async () => {
    await addUser("boris");
    await nats.kill();
    await push.deleteIdentity("boris");
    await waitFor(() => expect(auth.logs()).toContain("Events could not be delivered"));
    expect((await isReady(auth)).status).toBe(200);
    expect((await isReady(push)).status).toBe(200);
    expect(await historyOf("boris")).toBeGreaterThan(0);
    await nats.restart("kept");
    await expectForgotten("boris");
  });

  test("a deletion while push is down reaches it when it starts again", async () => {
    await addUser("carol");
    await push.stop();
    await push.deleteIdentity("carol");
    await waitFor(async () => {
      const metrics = await (await fetch(`${auth.management}/metrics`)).text();
      expect(metrics).toMatch(/^gatepost_outbox_events\{service="auth"\} 0$/m);
    });
    push = await startPushApart(backend, auth, { env });
    await expectForgotten("carol");
  });

  test("a broker that has lost its disk stops nothing", async () => {
    await addUser("dora");
    await nats.restart("lost");
    await push.deleteIdentity("dora");
    await expectForgotten("dora");
  });
});

test("a process that has just started and does not reach its broker is not ready, and says why", async () => {
  await using cleanup = new AsyncDisposableStack();
  const env = { BROKER_URL: `nats://127.0.0.1:${closedPort}` };
  const server = await startAuthServer(backend, { env, waitUntilReady: false });
  cleanup.defer(() => server.stop());
  await waitFor(() => expect(server.logs()).toContain("The broker cannot be used"));
  await waitFor(async () => {
    const { status, text } = await isReady(server);
    expect(status).toBe(503);
    expect(text).toContain("auth broker");
    expect(text).not.toContain("auth database");
  });
});
