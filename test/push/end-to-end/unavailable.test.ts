/** PostgreSQL goes away in the middle of a send and comes back. */
import { setTimeout as delay } from "node:timers/promises";
import { beforeAll, describe, expect, it } from "vitest";
import { type DatabaseWire, openDatabaseWire } from "../../support/database-wire.ts";
import type { PushProcess } from "../../support/push-server.ts";
import { worldOffsets } from "../../support/send-audience.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { lookAllTheTime, type Operator, operatorOf, until } from "./operator.ts";
import { createWorld, type World } from "./world.ts";

const devices = 3_000;
const users = 1_000;
/** Milliseconds within which a caller has an answer. */
const bound = 12_000;

type Call = Parameters<Operator["call"]>;

describe.runIf(backends.includes("PostgreSQL"))("PostgreSQL in the middle of a send", () => {
  let world: World;
  let wire: DatabaseWire;
  let server: PushProcess;
  let operator: Operator;
  let user: string;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    world = await createWorld("PostgreSQL", {
      env: { PUSH_MAX_PER_SECOND: "1000" },
      audience: { devices, users },
    });
    // The world ends before the wire closes: its servers leave their database in order.
    cleanup.defer(() => wire?.close());
    cleanup.defer(() => world.end());
    const { host, port } = world.database();
    wire = await openDatabaseWire(host, port);
    server = await world.start({ DB_HOST: "127.0.0.1", DB_PORT: String(wire.port) });
    operator = await operatorOf(server);
    user = `Bearer ${await server.userToken()}`;
  });

  /** Calls that change nothing. */
  const readers = (id: string): Call[] => {
    const { as } = operator;
    return [
      ["getNotificationsHistory", { as: user }],
      ["getNotificationsSummary", { as: user }],
      ["listNotifications", { as }],
      ["getNotification", { as, path: { id } }],
      ["listDeadLetters", { as }],
    ];
  };

  /** Calls that do: where the database hangs, 503 does not say whether they have. */
  const writers = (id: string): Call[] => {
    const { as } = operator;
    const device = { token: "a-token", expiration: new Date(Date.now() + 3_600_000).toISOString() };
    return [
      ["savePushToken", { as: user, json: device }],
      ["deletePushToken", { as: user, json: device }],
      ["sendPushNotification", { as, json: { title: "t", message: "m", utcOffsets: worldOffsets } }],
      ["pauseNotification", { as, path: { id } }],
      ["cancelNotification", { as, path: { id } }],
    ];
  };

  /** What callers are answered, and whether in time. */
  async function answers(
    calls: readonly Call[],
  ): Promise<{ operation: string; status: number; inTime: boolean }[]> {
    const began = performance.now();
    return Promise.all(
      calls.map(async ([operation, options]) => {
        const { status } = await operator.call(operation, options);
        return { operation, status, inTime: performance.now() - began < bound };
      }),
    );
  }

  /** A send during which the database is away; the rest is as if it had not been. */
  async function sendThrough(takeAway: (id: string) => Promise<void>): Promise<void> {
    const { ledger } = world.fcm;
    ledger.clear();
    const before = (await operator.list()).totalElements;
    const id = await operator.send();
    const stopLooking = lookAllTheTime(operator, id);
    await until("a part is sent", () => ledger.summary().messages > 500);
    await takeAway(id);

    await until("callers are served again", async () => {
      const { status } = await operator.call("getNotification", { as: operator.as, path: { id } });
      return status === 200;
    });
    expect(await operator.ended(id)).toMatchObject({
      ...{ state: "COMPLETED", recipients: users, planned: devices, sent: devices, failed: 0, dropped: 0 },
    });
    const { tokens, messages, repeats, tokensNotifiedTwice } = ledger.summary();
    expect({ tokens, tokensNotifiedTwice }).toEqual({ tokens: devices, tokensNotifiedTwice: 0 });
    expect(messages).toBe(devices + repeats);
    // What was being sent then may be sent again, if it could not be written down for too long: one chunk.
    expect(repeats).toBeLessThanOrEqual(Math.ceil(devices / worldOffsets.length));
    expect((await stopLooking()).problems).toEqual([]);
    // The sends that were answered 503 have not been taken.
    expect((await operator.list()).totalElements).toBe(before + 1);
  }

  const allAway = (answered: Awaited<ReturnType<typeof answers>>) =>
    expect(answered).toEqual(answered.map(({ operation }) => ({ operation, status: 503, inTime: true })));

  it("is gone: callers get 503, and the send goes on when it is back", () =>
    sendThrough(async (id) => {
      const mend = await wire.cut();
      allAway(await answers([...readers(id), ...writers(id)]));
      await delay(3_000);
      allAway(await answers([...readers(id), ...writers(id)]));
      await mend();
    }));

  it("hangs: callers get 503 in time, and the send goes on when it moves again", () =>
    sendThrough(async (id) => {
      const release = wire.hang();
      allAway(await answers(readers(id)));
      release();
    }));
});
