/** The removal of dead devices, and the safety stop: what is judged, over what, and what an operator decides. */
import { sql } from "drizzle-orm";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { deliveryRules } from "../../../src/push/delivery/delivery-rules.ts";
import { decideRemovals, type StoppedAt } from "../../../src/push/delivery/removal-stop.ts";
import {
  type Responses,
  recordDead,
  recordResponses,
  removeDue,
} from "../../../src/push/delivery/removals.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import {
  createDeliveryTest,
  type DeliveryTest,
  eventually,
  type Planned,
  recordingProvider,
} from "./delivery-fixture.ts";

const limits = { ...deliveryRules, maxDeadPercent: 30 };

describe.each(backends)("removals on %s", (backend) => {
  let test: DeliveryTest;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    test = await createDeliveryTest(backend);
    cleanup.defer(() => test.close());
  });
  afterEach(async () => {
    await test.stopWorkers();
    await test.clearState();
    await test.db.execute(sql`delete from push.devices`);
    await test.db.execute(sql`delete from push.outbox`);
  });

  const left = async ({ deviceIds }: Planned) =>
    (
      await rows(
        test.db,
        sql`select 1 from push.devices where id = any(${`{${deviceIds.join(",")}}`}::bigint[])`,
      )
    ).length;

  /** What a provider responded: so many users accepted, and these devices dead. */
  function responded(
    good: number,
    planned: Planned | undefined,
    users = planned?.deviceIds.length ?? 0,
  ): Responses {
    const dead = (planned?.deviceIds ?? []).map((deviceId, index) => ({
      ...{ deviceId, asOf: Date.now() + 1_000, userId: `dead-${planned?.notificationId}-${index % users}` },
    }));
    const goodUsers = Array.from({ length: good }, (_, index) => [`good-${index}`, true] as const);
    return {
      sent: [],
      dead,
      users: new Map([...goodUsers, ...dead.map(({ userId }) => [userId, false] as const)]),
    };
  }

  function record(responses: Responses): Promise<{ isHeld: boolean; stoppedAt: StoppedAt | undefined }> {
    const ids = `{${responses.dead.map(({ deviceId }) => deviceId).join(",")}}`;
    const users = `{${responses.dead.map(({ userId }) => `"${userId}"`).join(",")}}`;
    return test.db.transaction(async (tx) => {
      await tx.execute(sql`
        update push.devices set user_id = owner
        from unnest(${ids}::bigint[], ${users}::text[]) as owned (device, owner) where id = device`);
      await recordResponses(tx, "fcm", responses);
      return recordDead(tx, "fcm", responses.dead, limits);
    });
  }

  const remove = (removalDelaySeconds: number) =>
    removeDue(test.db, "fcm", { ...limits, removalDelaySeconds });

  it("come after their delay, and not before", async () => {
    const planned = await test.plan({ devices: 20 });
    expect(await record(responded(100, planned))).toEqual({ isHeld: false, stoppedAt: undefined });
    await remove(60);
    expect(await left(planned)).toBe(20);
    await remove(0);
    expect(await left(planned)).toBe(0);
    await remove(0);
  });

  it("come again for a device that was renewed and is dead all the same, and not for a user who is forgotten", async () => {
    const planned = await test.plan({ devices: 2 });
    const early = responded(100, planned);
    await record({ ...early, dead: early.dead.map((one) => ({ ...one, asOf: 0 })) });
    await remove(0);
    expect(await left(planned)).toBe(2);
    await record(responded(100, planned));
    await remove(60);
    expect(await left(planned)).toBe(2);
    await remove(0);
    expect(await left(planned)).toBe(0);
    await record(responded(100, planned));
    await test.db.execute(sql`delete from push.dead_reports`);
    await record(responded(100, planned));
    expect(await rows(test.db, sql`select 1 from push.dead_reports`)).toEqual([]);
  });

  it("stop for many small sends as for one large one, before any token is gone", async () => {
    const sends: Planned[] = [];
    const stops: StoppedAt[] = [];
    for (let send = 0; send < 20; send += 1) {
      const planned = await test.plan({ devices: 5 });
      sends.push(planned);
      const { stoppedAt } = await record(responded(0, planned));
      if (stoppedAt) stops.push(stoppedAt);
      await remove(60);
    }
    expect(stops).toEqual([{ users: 55, deadUsers: 55 }]);
    await remove(0);
    for (const planned of sends) expect(await left(planned)).toBe(5);
    const events = await rows(
      test.db,
      sql`select subject, data from push.outbox where type = 'push.removals.held.v1'`,
    );
    expect(events).toEqual([{ subject: "fcm", data: { provider: "fcm", users: 55, deadUsers: 55 } }]);
  });

  it("look at the newest responses, however many there were before", async () => {
    for (let chunk = 0; chunk < 5; chunk += 1) {
      await test.db.transaction((tx) => recordResponses(tx, "fcm", responded(1_000, undefined)));
    }
    const planned = await test.plan({ devices: 300 });
    expect((await record(responded(0, planned))).isHeld).toBe(false);
    const more = await test.plan({ devices: 1 });
    expect((await record(responded(0, more))).stoppedAt).toEqual({ users: 1_000, deadUsers: 301 });
  });

  it("count each user once, however many responses are about that user's devices", async () => {
    const planned = await test.plan({ devices: 60 });
    await test.db.transaction((tx) => recordResponses(tx, "fcm", responded(200, undefined)));
    // 300 of 500 responses, but 60 of 260 users.
    for (let send = 0; send < 5; send += 1) expect((await record(responded(0, planned))).isHeld).toBe(false);
    for (let send = 0; send < 5; send += 1)
      await test.db.transaction((tx) => recordResponses(tx, "fcm", responded(150, undefined)));
    // 340 of 1,290 responses, but 100 of 300 users.
    const more = await test.plan({ devices: 40 });
    const { stoppedAt } = await record(responded(0, more));
    expect(stoppedAt).toEqual({ users: 300, deadUsers: 100 });
  });

  it("go by the last response about a user", async () => {
    const planned = await test.plan({ devices: 60 });
    const { users } = responded(0, planned);
    const alive = { users: new Map([...users.keys()].map((user) => [user, true])), sent: [], dead: [] };
    await test.db.transaction((tx) => recordResponses(tx, "fcm", alive));
    expect((await record(responded(0, planned))).stoppedAt).toEqual({ users: 60, deadUsers: 60 });
  });

  it("do not stop for one user, however many dead tokens that user has", async () => {
    const planned = await test.plan({ devices: 500 });
    for (let send = 0; send < 60; send += 1)
      expect((await record(responded(0, planned, 1))).isHeld).toBe(false);
    while (await remove(0));
    expect(await left(planned)).toBe(0);
  });

  it("spare a device that the provider accepts again", async () => {
    const planned = await test.plan({ devices: 2 });
    await record(responded(100, planned));
    await test.db.transaction((tx) =>
      recordResponses(tx, "fcm", { ...responded(1, undefined), sent: planned.deviceIds.slice(0, 1) }),
    );
    await remove(0);
    expect(await left(planned)).toBe(1);
  });

  it("go on when an operator confirms them, and stop again if it becomes too much again", async () => {
    const planned = await test.plan({ devices: 60 });
    expect((await record(responded(0, planned))).isHeld).toBe(true);
    await remove(0);
    expect(await left(planned)).toBe(60);
    expect(await decideRemovals(test.db, "fcm", "confirm")).toBe(60);
    await remove(3_600);
    expect(await left(planned)).toBe(0);
    const next = await test.plan({ devices: 60 });
    expect((await record(responded(0, next))).isHeld).toBe(true);
  });

  it("are given up when an operator discards them", async () => {
    const planned = await test.plan({ devices: 60 });
    await record(responded(0, planned));
    expect(await decideRemovals(test.db, "fcm", "discard")).toBe(60);
    await remove(0);
    expect(await left(planned)).toBe(60);
    const few = await test.plan({ devices: 10 });
    expect((await record(responded(0, few))).isHeld).toBe(false);
  });

  it("are held while a worker sends to a base that looks dead, and it is said once", async () => {
    const provider = recordingProvider();
    provider.answer = () => ({ kind: "dead", reason: "400 BadDeviceToken" });
    const planned = await test.plan({ devices: 300, chunkSize: 100 });
    test.startWorker({ providers: [provider] });
    await test.until(planned, ["DONE"]);
    const isMarked = async () =>
      (
        await rows<{ stopped: boolean }>(
          test.db,
          sql`select removal_stopped_at is not null as stopped from push.notifications
              where id = ${planned.notificationId}::uuid`,
        )
      )[0]?.stopped === true;
    await eventually(isMarked);
    expect(await left(planned)).toBe(300);
    const told = test.log.lines().filter(({ notificationId }) => notificationId === planned.notificationId);
    expect(told).toMatchObject([{ level: "error", users: 100, deadUsers: 100 }]);
  });
});
