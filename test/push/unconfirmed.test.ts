/** What no standby has confirmed is acknowledged to nobody: not to a retry that finds it done, and not to the broker. */
import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, test } from "vitest";
import { AuthEvents } from "../../src/auth/events.ts";
import { authMigrations } from "../../src/auth/service.ts";
import type { OpenDatabase } from "../../src/platform/database/database.ts";
import { openDatabase } from "../../src/platform/database/open.ts";
import { type Broker, createBroker } from "../../src/platform/messaging/broker.ts";
import { publishEvents } from "../../src/platform/messaging/publish-events.ts";
import { pushMigrations } from "../../src/push/database.ts";
import { deletionsConsumer } from "../../src/push/events.ts";
import { providerStates } from "../../src/push/schema.ts";
import { postgresSettings } from "../support/backends.ts";
import { captureLog } from "../support/captured-log.ts";
import { type Answer, type ContractCall, contractCall } from "../support/contract-api.ts";
import { readContract } from "../support/contract-check.ts";
import { findNats, startNats } from "../support/nats.ts";
import { findPostgresql } from "../support/postgresql/binaries.ts";
import {
  type ReplicatedDatabase,
  startReplicatedDatabase,
} from "../support/postgresql/replicated-database.ts";
import { insertNotification } from "../support/push-rows.ts";
import { type PushServer, startPushServer } from "../support/push-server.ts";
import { rows } from "../support/rows.ts";
import { databaseEnvironment } from "../support/servers.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { waitFor } from "../support/wait-for.ts";

const binaries = findPostgresql(["initdb", "postgres", "pg_basebackup"]);
const nobody = "nobody";

describe.runIf(binaries && findNats())(
  "push on a primary whose synchronous standby is gone: PostgreSQL",
  () => {
    let replicated: ReplicatedDatabase;
    let database: OpenDatabase;
    let server: PushServer;
    let broker: Broker;
    let call: ContractCall;
    const cleanup = suiteCleanup();
    beforeAll(async () => {
      const nats = await startNats();
      cleanup.defer(() => nats.stop());
      replicated = await startReplicatedDatabase(binaries ?? "", [authMigrations, pushMigrations], cleanup);
      database = await openDatabase(postgresSettings(replicated.database), pushMigrations);
      cleanup.defer(() => database.close());
      const broking = { BROKER_URL: nats.url, TEST_NOTIFICATION_USER_IDS: nobody };
      // What an event met of a database that does not respond in time is logged at level debug.
      const logging = { LOGGING_LEVEL: "debug" };
      // Each of the requests keeps a connection waiting, and those of the workers are there as well.
      const env = { ...databaseEnvironment(replicated.database), ...broking, ...logging, DB_POOL_SIZE: "30" };
      server = await startPushServer("PostgreSQL", { env });
      cleanup.defer(() => server.stop());
      const kept = { replicas: 1, retentionDays: 7 };
      const settings = { servers: [nats.url], credentials: undefined, ca: undefined, ...kept };
      broker = createBroker({ settings, name: "test", logger: captureLog().logger });
      cleanup.defer(() => broker.close());
      call = contractCall(server.origin, readContract("push-orchestration"));
    });

    const expiration = new Date(Date.now() + 3_600_000).toISOString();
    const later = () => Date.now() + 3_600_000;

    async function newDevice(userId: string): Promise<{ as: string; token: string }> {
      const as = `Bearer ${await server.userToken(userId)}`;
      const token = `device-of-${userId}`;
      expect((await call("savePushToken", { as, json: { token, expiration } })).status).toBe(204);
      return { as, token };
    }

    const countOf = async (from: string): Promise<number> => {
      const [found] = await rows<{ n: number }>(
        database.db,
        sql.raw(`select count(*)::int as n from ${from}`),
      );
      return Number(found?.n);
    };

    interface Request {
      send(): Promise<Answer>;
      /** The status of a retry, once what it asks for has been done by an earlier try. */
      readonly done: number;
      /** Rows that are there once it has been done, or are no longer there. */
      readonly rows: string;
      /** How many of them there are then. */
      readonly left: number;
    }

    async function requests(): Promise<Record<string, Request>> {
      const { db } = database;
      const [one, all] = await Promise.all([newDevice("one"), newDevice("all")]);
      const as = `Bearer ${await server.backofficeToken()}`;
      const sending = { acceptedAt: later(), state: "SENDING", chunks: ["READY"] } as const;
      const [paused, cancelled] = [
        await insertNotification(db, sending),
        await insertNotification(db, sending),
      ];
      const given = await insertNotification(db, { ...sending, acceptedAt: later(), chunks: ["DEAD"] });
      const [letter] = await rows<{ id: string }>(
        db,
        sql`select id::text from push.delivery_chunks where notification_id = ${given}::uuid`,
      );
      const ofProvider = {
        nextAt: new Date(),
        share: 1,
        failures: 1,
        cause: "unavailable",
        reason: "a test",
      };
      await db.insert(providerStates).values({
        ...ofProvider,
        provider: "outbox",
        service: "https://a.example",
        pausedUntil: new Date(later()),
      });
      await newDevice("dead");
      await db.execute(sql`
      insert into push.dead_reports (device_id, provider, user_id, as_of, reported_at, state)
      select id, provider, user_id, now(), now(), 'WAITING' from push.devices where user_id = 'dead'`);
      const send = { title: "Summer is here", message: "Have a look.", utcOffsets: [0] };
      const headers = { "idempotency-key": randomUUID() };
      const state = (id: string, is: string) => `push.notifications where id = '${id}' and state = '${is}'`;
      const devices = (userId: string) => `push.devices where user_id = '${userId}'`;
      return {
        "removal of a device": {
          send: () => call("deletePushToken", { as: one.as, json: { token: one.token } }),
          ...{ done: 204, rows: devices("one"), left: 0 },
        },
        "removal of all devices": {
          send: () => call("deletePushToken", { as: all.as, json: { all: true } }),
          ...{ done: 204, rows: devices("all"), left: 0 },
        },
        sending: {
          send: () => call("sendPushNotification", { as, json: send, headers }),
          ...{ done: 204, rows: "push.idempotency_keys", left: 1 },
        },
        "a test run": {
          send: () => call("startTestNotifications"),
          ...{ done: 202, rows: "push.test_runs", left: 1 },
        },
        pausing: {
          send: () => call("pauseNotification", { as, path: { id: paused } }),
          ...{ done: 200, rows: state(paused, "PAUSED"), left: 1 },
        },
        cancelling: {
          send: () => call("cancelNotification", { as, path: { id: cancelled } }),
          ...{ done: 409, rows: state(cancelled, "CANCELLED"), left: 1 },
        },
        "replay of a dead letter": {
          send: () => call("replayDeadLetter", { as, path: { id: letter?.id ?? "" } }),
          ...{ done: 404, rows: "push.delivery_chunks where state = 'DEAD'", left: 0 },
        },
        // There are none any more.
        "replay of all dead letters": {
          send: () => call("replayAllDeadLetters", { as }),
          ...{ done: 202, rows: "push.delivery_chunks where state = 'DEAD'", left: 0 },
        },
        "ending a pause": {
          send: () => call("resumeProvider", { as, path: { provider: "outbox" } }),
          ...{ done: 200, rows: "push.provider_states where paused_until > now()", left: 0 },
        },
        "discarding removals": {
          send: () => call("discardRemovals", { as, path: { provider: "outbox" } }),
          ...{ done: 200, rows: "push.dead_reports", left: 0 },
        },
      };
    }

    /** The deletion of a user, as the auth service tells of it. @returns the event's id */
    async function tellOfDeletion(subject: string): Promise<string> {
      const { stream } = deletionsConsumer;
      const publisher = publishEvents(broker, stream, Object.values(AuthEvents));
      const id = randomUUID();
      const { type } = AuthEvents.identityDeleted;
      const event = { specversion: "1.0", id, source: "https://id.example.com", type, subject } as const;
      const time = new Date().toISOString();
      await publisher.deliver({
        ...event,
        ...{ time, datacontenttype: "application/json", data: { identityId: subject } },
      });
      await publisher.flush?.();
      return id;
    }

    test("nothing that an earlier try did is acknowledged, until the standby is back", async () => {
      const all = Object.entries(await requests());
      await newDevice("deleted");
      const each = async <T>(of: (request: Request) => Promise<T> | T): Promise<Record<string, T>> =>
        Object.fromEntries(await Promise.all(all.map(async ([name, one]) => [name, await of(one)] as const)));
      const statuses = () => each(async ({ send }) => (await send()).status);
      const refused = await each(() => 503);
      const failures = () =>
        server.logs().split("An event could not be handled and will come again").length - 1;

      await replicated.standby.halt("fast");
      const event = await tellOfDeletion("deleted");
      expect(await statuses()).toEqual(refused);
      await replicated.waitsHaveEnded();
      expect(await each(({ rows: from }) => countOf(from))).toEqual(await each(({ left }) => left));
      await waitFor(async () => expect(await countOf(`push.inbox where event_id = '${event}'`)).toBe(1));
      expect(await countOf("push.devices where user_id = 'deleted'")).toBe(0);
      expect(await statuses()).toEqual(refused);
      await waitFor(() => expect(failures()).toBeGreaterThan(1));
      expect(await broker.unread(deletionsConsumer)).toMatchObject({ events: 1 });

      await replicated.standby.resume();
      const done = await each((request) => request.done);
      await waitFor(async () => expect(await statuses()).toEqual(done));
      await waitFor(async () => expect(await broker.unread(deletionsConsumer)).toMatchObject({ events: 0 }));
    }, 90_000);
  },
);
