/** Identities that are deleted while nothing of what tells push of it is up: it learns of each all the same, once. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type JetStreamManager, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect, headers, type NatsConnection } from "@nats-io/transport-node";
import { beforeAll, describe, expect, test } from "vitest";
import { basic } from "../support/auth-api.ts";
import { spawnAuthServer } from "../support/auth-server.ts";
import { createMigratedDatabase } from "../support/migrated-database.ts";
import { findNats, type Nats, startNats } from "../support/nats.ts";
import { type PushServer, startPushApart } from "../support/push-server.ts";
import { backends, databaseEnvironment } from "../support/servers.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { waitFor } from "../support/wait-for.ts";

const authStream = "gatepost-auth";
const pushStream = "gatepost-push";
const deleted = "auth.identity.deleted.v1";
const removed = "push.token.removed.v1";
const messageId = "Nats-Msg-Id";

const users = Array.from({ length: 4 }, (_, index) => `user-${index}`);

async function call(push: PushServer, user: string, method: "GET" | "POST", path: string, body?: object) {
  const response = await fetch(`${push.base}/v1/pushprovider/${path}`, {
    method,
    headers: {
      authorization: `Bearer ${await (user === "" ? push.backofficeToken() : push.userToken(user))}`,
      ...(body && { "content-type": "application/json" }),
    },
    ...(body && { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return text;
}

const addDevice = (push: PushServer, user: string) => {
  const expiration = new Date(Date.now() + 3_600_000).toISOString();
  return call(push, user, "POST", "token", { token: `device-of-${user}`, expiration });
};

async function historyOf(push: PushServer, user: string): Promise<number> {
  const page: { totalElements: number } = JSON.parse(await call(push, user, "GET", "notifications-history"));
  return page.totalElements;
}

describe.skipIf(findNats() === undefined || !backends.includes("PostgreSQL"))("events of identities", () => {
  const cleanup = suiteCleanup();
  let nats: Nats;
  let broker: Record<string, string>;
  let env: Record<string, string>;
  beforeAll(async () => {
    nats = await startNats();
    cleanup.defer(() => nats.stop());
    const database = await createMigratedDatabase();
    cleanup.defer(() => database.drop());
    const dataDir = mkdtempSync(join(tmpdir(), "gatepost-test-"));
    cleanup.defer(() => rmSync(dataDir, { recursive: true, force: true }));
    broker = { BROKER_URL: nats.url };
    // Without introspection push removes all that there is when it acts: what acts twice is seen.
    const alone = { PLATFORM_SECURITY_URL: "", PLATFORM_SECURITY_API_KEY: "", TOKEN_AUDIENCE: "push" };
    env = { ...broker, ...databaseEnvironment(database), ...alone, DATA_DIR: dataDir };
  });

  async function withBroker<T>(look: (manager: JetStreamManager, connection: NatsConnection) => Promise<T>) {
    const connection = await connect({ servers: nats.url });
    try {
      return await look(await jetstreamManager(connection), connection);
    } finally {
      await connection.close();
    }
  }

  /** How many devices were removed, by the events that say so. */
  const removals = () =>
    withBroker(async ({ streams }) => {
      const { state } = await streams.info(pushStream, { subjects_filter: removed });
      return state.subjects?.[removed] ?? 0;
    });

  /** Sends each deletion once more, so late that the broker does not know it again. */
  const repeatDeletions = () =>
    withBroker(async ({ streams }, connection) => {
      const { state } = await streams.info(authStream);
      let repeated = 0;
      for (let seq = state.first_seq; seq <= state.last_seq; seq += 1) {
        const message = await streams.getMessage(authStream, { seq });
        if (message?.subject !== deleted) continue;
        const copied = headers();
        for (const key of message.header.keys())
          if (key !== messageId) copied.set(key, message.header.get(key));
        await jetstream(connection).publish(deleted, message.data, { headers: copied });
        repeated += 1;
      }
      return repeated;
    });

  const areAllTaken = () =>
    withBroker(async ({ consumers }) => {
      const { num_pending, num_ack_pending } = await consumers.info(authStream, "push-identity-deleted");
      return num_pending + num_ack_pending === 0;
    });

  test("reach push though it, NATS and the process that relays were down or killed, and act once", async () => {
    const auth = await spawnAuthServer("PostgreSQL", { env: broker });
    cleanup.defer(() => auth.stop());
    const before = await startPushApart("PostgreSQL", auth, { env });
    cleanup.defer(() => before.stop());
    for (const user of users) await addDevice(before, user);
    await call(before, "", "POST", "push", { title: "Hello", message: "How are you?", utcOffsets: [0] });
    for (const user of users)
      await waitFor(async () => expect(await historyOf(before, user)).toBeGreaterThan(0));

    await nats.kill();
    await before.stop();
    for (const user of users) await before.deleteIdentity(user);
    await waitFor(() => expect(auth.logs()).toContain("Events could not be delivered"));
    await auth.kill();

    await nats.restart("kept");
    const later = await spawnAuthServer("PostgreSQL", { env: auth.env });
    cleanup.defer(() => later.stop());
    const push = await startPushApart("PostgreSQL", later, { env });
    cleanup.defer(() => push.stop());
    // The killed process holds the parts of its relay for twenty seconds.
    await waitFor(async () => expect(await removals()).toBe(users.length), 500);
    for (const user of users) expect(await historyOf(push, user), user).toBe(0);

    // They come back under their ids: a deletion that acted a second time would take the new device.
    for (const user of users) await addDevice(push, user);
    expect(await repeatDeletions()).toBe(users.length);
    await waitFor(async () => expect(await areAllTaken()).toBe(true), 500);
    await call(push, "", "POST", "push", { title: "Again", message: "Are you back?", utcOffsets: [0] });
    for (const user of users)
      await waitFor(async () => expect(await historyOf(push, user), user).toBeGreaterThan(0));
    expect(await removals()).toBe(users.length);
    await Promise.all([push.stop(), later.stop()]);
  });

  test("reach push where an authorization has ended, and its device goes", async () => {
    const auth = await spawnAuthServer("PostgreSQL", { env: broker });
    cleanup.defer(() => auth.stop());
    const push = await startPushApart("PostgreSQL", auth, { env });
    cleanup.defer(() => push.stop());
    await addDevice(push, "signed-out");
    const before = await removals();
    const changed = await fetch(`${push.authBase}/v1/identities/signed-out/password`, {
      method: "PUT",
      headers: {
        authorization: basic("internal", "internal-dev-secret"),
        "content-type": "application/json",
      },
      body: JSON.stringify({ password: "another horse battery" }),
    });
    expect(changed.status).toBe(204);
    await waitFor(async () => expect(await removals()).toBe(before + 1));
  });
});
