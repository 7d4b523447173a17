/** Planning: each device once, each user one history entry, whatever happens meanwhile. */
import { type SQL, sql } from "drizzle-orm";
import { PgDialect } from "drizzle-orm/pg-core";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Database } from "../../../src/platform/database/database.ts";
import {
  deliveryQueue,
  followQueue,
  type PlanJob,
  planQueue,
  planRestQueue,
} from "../../../src/push/database.ts";
import { forgetUser } from "../../../src/push/devices/forget-user.ts";
import { sweepCompletions } from "../../../src/push/notifications/completion-sweep.ts";
import { createNotifications } from "../../../src/push/notifications/notifications.ts";
import { createPlanner } from "../../../src/push/notifications/plan-notification.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { allProviders, createLab, type Lab, testUser } from "./notification-lab.ts";

/** When the identity was deleted: after all that the test has registered. */
const afterwards = new Date("2100-01-01");

/** A database whose transactions call `before` with the text of each statement before they run it. */
function betweenStatements(db: Database, before: (text: string) => Promise<void>): Database {
  const watched = (tx: Database) =>
    new Proxy(tx, {
      get: (target, name) =>
        name === "execute"
          ? async (statement: SQL) => {
              await before(new PgDialect().sqlToQuery(statement).sql);
              return tx.execute(statement);
            }
          : Reflect.get(target, name),
    });
  return new Proxy(db, {
    get: (target, name) =>
      name === "transaction"
        ? (work: (tx: Database) => Promise<unknown>) => db.transaction((tx) => work(watched(tx)))
        : Reflect.get(target, name),
  });
}

/** Devices a step, in tests that need steps. */
const window = 10;

describe.each(backends)("planning on %s", (backend) => {
  let lab: Lab;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createLab(backend);
    cleanup.defer(() => lab.drop());
  });
  beforeEach(() => lab.clear());

  /** 100 devices of 40 users. */
  const manyDevices = () =>
    lab.addDevices(Array.from({ length: 100 }, (_, index) => ({ userId: `user-${index % 40}` })));
  const planned = async (id: string) => (await lab.chunks(id)).flatMap(({ devices }) => devices);
  const progress = (id: string) => lab.notifications.get(id);
  /** A planner; `between` is called after each of its jobs and chunks was enqueued. */
  const planner = (between: () => Promise<unknown> | unknown = () => undefined, db = lab.db) => {
    const enqueue: typeof lab.jobs.enqueue = async (tx, queue, jobs) => {
      await lab.jobs.enqueue(tx, queue, jobs);
      if (queue.startsWith("deliver")) await between();
    };
    const jobs = { enqueue, complete: lab.jobs.complete, wake: lab.jobs.wake };
    return createPlanner({ db, jobs, clock: lab.clock, providers: allProviders, window });
  };
  async function planSteps(steps: number): Promise<void> {
    for (let step = 0; step < steps; step += 1) await planner().handle(await lab.takePlanJob());
  }
  const giveToAnother = (id: string) =>
    lab.db.execute(sql`update push_jobs.job set state = 'retry', retry_count = 1 where id = ${id}::uuid`);
  /** As if the process died in the middle of a step. */
  async function dieInStep(): Promise<void> {
    const job = await lab.takePlanJob();
    const dying = planner(() => Promise.reject(new Error("died")));
    await expect(dying.handle(job)).rejects.toThrow("died");
    await giveToAnother(job.id);
  }
  const rangesLeft = async () => (await rows(lab.db, sql`select 1 from push.plan_ranges`)).length;
  async function expectAllOnce(id: string, devices: readonly number[]): Promise<void> {
    expect((await planned(id)).toSorted((a, b) => a - b)).toEqual(devices);
    const { recipients, planned: sum, remaining } = await progress(id);
    expect({ recipients, sum, remaining }).toEqual({ recipients: 40, sum: 100, remaining: 100 });
    expect(await lab.recipients(id)).toHaveLength(40);
    expect(await rangesLeft()).toBe(0);
  }

  test("the devices that live at one of the offsets, by offset and provider", async () => {
    const [a, b, c, d] = await lab.addDevices([
      { userId: "ann", utcOffset: 0, provider: "fcm" },
      { userId: "ann", utcOffset: 330, provider: "apns" },
      { userId: "bob", utcOffset: 0, provider: "fcm" },
      { userId: "cid", utcOffset: -60, provider: "outbox" },
      { userId: "dan", utcOffset: 60 },
      { userId: "eve", utcOffset: 0, expiresInSeconds: 0 },
    ]);
    const id = await lab.accept([0, 330, -60]);
    await lab.plan();
    const chunks = await lab.chunks(id);
    expect(
      chunks.map(({ utcOffset, provider, state, devices }) => ({ utcOffset, provider, state, devices })),
    ).toEqual([
      { utcOffset: -60, provider: "outbox", state: "PENDING", devices: [d] },
      { utcOffset: 0, provider: "fcm", state: "PENDING", devices: [a, c] },
      { utcOffset: 330, provider: "apns", state: "PENDING", devices: [b] },
    ]);
    for (const { id: chunk, provider } of chunks) {
      expect(await lab.waiting(deliveryQueue(provider))).toEqual([{ chunkId: Number(chunk) }]);
    }
    expect(await lab.recipients(id)).toEqual(["ann", "bob", "cid"]);
    expect(await progress(id)).toMatchObject({ state: "SENDING", recipients: 3, planned: 4, remaining: 4 });
    expect(await lab.waiting(planQueue)).toEqual([]);
  });

  test("no device of a provider that is not in use: nobody would send to it", async () => {
    const [a, , , d] = await lab.addDevices([
      { userId: "ann", provider: "fcm" },
      { userId: "ann", provider: "apns" },
      { userId: "bob", provider: "apns" },
      { userId: testUser, provider: "webpush" },
      { userId: testUser, provider: "apns" },
    ]);
    const id = await lab.accept();
    const testRun = await lab.accept();
    await lab.db.execute(sql`
      update push.notifications set utc_offsets = null, user_ids = ${`{${testUser}}`}::text[] where id = ${testRun}::uuid`);
    await lab.plan(2, ["fcm", "webpush"]);
    expect((await planned(id)).toSorted((one, other) => one - other)).toEqual([a, d]);
    expect(await planned(testRun)).toEqual([d]);
    expect(await lab.recipients(id)).toEqual(["ann", testUser]);
    expect(await lab.recipients(testRun)).toEqual([testUser]);
    // Only devices that nobody serves: it ends all the same.
    await lab.db.execute(sql`delete from push.devices where provider <> 'apns'`);
    const nobody = await lab.accept();
    await lab.plan(2, ["fcm", "webpush"]);
    expect(await progress(nobody)).toMatchObject({ state: "COMPLETED", recipients: 0, planned: 0 });
  });

  test("chunks have at most 1,000 devices, and those of a step are even", async () => {
    await lab.addDevices(Array.from({ length: 3_500 }, (_, index) => ({ userId: `user-${index}` })));
    const id = await lab.accept();
    await lab.plan();
    expect((await lab.chunks(id)).map(({ planned }) => planned)).toEqual([1_000, 833, 833, 834]);
  });

  test("steps do not matter: each device once, each user once", async () => {
    const devices = await manyDevices();
    const id = await lab.accept();
    await lab.plan(window);
    await expectAllOnce(id, devices);
  });

  test("nobody to send to: it is completed at once", async () => {
    const id = await lab.accept([15]);
    await lab.plan();
    expect(await progress(id)).toMatchObject({ state: "COMPLETED", recipients: 0, planned: 0 });
    expect(await lab.events("push.notification.completed.v1")).toMatchObject([
      { notificationId: id, planned: 0 },
    ]);
  });

  test("a planner that dies between steps: the next one goes on where it was", async () => {
    const devices = await manyDevices();
    const id = await lab.accept();
    for (const steps of [1, 0, 3, 2]) {
      await planSteps(steps);
      await dieInStep();
      const { planned: sum, breakdown } = await progress(id);
      expect(sum).toBe((await planned(id)).length);
      expect(breakdown.reduce((total, share) => total + share.remaining, 0)).toBe(sum);
    }
    expect(await planned(id)).toHaveLength(60);
    await lab.plan(window);
    await expectAllOnce(id, devices);
  });

  test.runIf(backend === "PostgreSQL")(
    "a connection that ends within a step takes only that step with it",
    async () => {
      const devices = await manyDevices();
      const id = await lab.accept();
      await planSteps(2);
      const job = await lab.takePlanJob();
      await expect(planner(() => lab.own.terminate()).handle(job)).rejects.toThrow();
      // The other connections ended too, and some statements find that out.
      await expect.poll(() => planned(id).catch(() => [])).toHaveLength(20);
      await giveToAnother(job.id);
      await lab.plan(window);
      await expectAllOnce(id, devices);
    },
  );

  test("two planners at once plan nothing twice; the one that lost its job undoes nothing", async () => {
    const devices = await manyDevices();
    const id = await lab.accept();
    const job = await lab.takePlanJob();
    const outcomes = await Promise.allSettled([planner().handle(job), planner().handle(job)]);
    expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    expect(outcomes.find(({ status }) => status === "rejected")).toMatchObject({
      reason: { name: "JobLostError" },
    });
    await lab.plan(window);
    await expectAllOnce(id, devices);
    expect(await progress(id)).toMatchObject({ state: "SENDING" });
  });

  test("several processes plan one notification at once, and nothing twice", async () => {
    const devices = await manyDevices();
    const id = await lab.accept();
    await planSteps(1);
    await Promise.all(Array.from({ length: 4 }, () => lab.plan(3)));
    await expectAllOnce(id, devices);
    expect(await progress(id)).toMatchObject({ state: "SENDING" });
    const chunks = await lab.chunks(id);
    expect(await lab.waiting(deliveryQueue("outbox"))).toHaveLength(chunks.length);
  });

  test("notifications take turns: one to few users does not wait for one to many", async () => {
    await manyDevices();
    await lab.addDevices([{ userId: "few", utcOffset: 60 }]);
    const large = await lab.accept();
    await planSteps(3);
    const small = await lab.accept([60]);
    await planSteps(1);
    expect(await progress(small)).toMatchObject({ state: "SENDING", planned: 1 });
    expect(await progress(large)).toMatchObject({ state: "PLANNING", planned: 30 });
  });

  test("the first step is small, whatever the others are", async () => {
    await lab.addDevices(Array.from({ length: 2_500 }, (_, index) => ({ userId: `user-${index}` })));
    const id = await lab.accept();
    const { handle } = createPlanner({
      ...{ db: lab.db, jobs: lab.jobs, clock: lab.clock, providers: allProviders },
    });
    await handle(await lab.takePlanJob());
    expect(await progress(id)).toMatchObject({ state: "PLANNING", planned: 1_000 });
    await handle(await lab.takePlanJob());
    expect(await progress(id)).toMatchObject({ state: "SENDING", planned: 2_500 });
  });

  test.runIf(backend === "PostgreSQL")(
    "a device that comes to a place where nobody was, in the middle of a step, is not missed",
    async () => {
      const devices = await manyDevices();
      const id = await lab.accept();
      let isMoved = false;
      const db = betweenStatements(lab.db, async (text) => {
        if (isMoved || !text.includes("push.plan")) return;
        isMoved = true;
        await lab.db.execute(
          sql`update push.devices set time_zone = 'Africa/Accra' where id = ${devices[4]}::bigint`,
        );
      });
      await planner(undefined, db).handle(await lab.takePlanJob());
      expect(isMoved).toBe(true);
      await lab.plan(window);
      await expectAllOnce(id, devices);
    },
  );

  test("devices that change offset or user meanwhile are planned once, and their users have one entry", async () => {
    const devices = await manyDevices();
    const id = await lab.accept([0, 60]);
    await planSteps(4);
    // Those planned and those not yet planned alike: other offsets, other hands.
    await lab.db.execute(sql`update push.devices set utc_offset = 60 where id % 2 = 0`);
    await lab.db.execute(sql`update push.devices set user_id = 'user-1' where id % 5 = 0`);
    await lab.plan(window);
    expect((await planned(id)).toSorted((a, b) => a - b)).toEqual(devices);
    const users = await lab.recipients(id);
    expect(new Set(users).size).toBe(users.length);
    expect(await progress(id)).toMatchObject({ planned: 100, recipients: users.length });
  });

  test("a device that comes to another user before it is planned is planned, and that user has an entry", async () => {
    const devices = await manyDevices();
    const id = await lab.accept();
    await planSteps(2);
    const at = new Date(lab.clock.now()).toISOString();
    for (const [device, user] of [
      [devices[30], "a-user-before-all-others"],
      [devices[70], "zz-user-after-all-others"],
    ]) {
      await lab.db.execute(
        sql`update push.devices set user_id = ${user}, renewed_at = ${at}::timestamptz where id = ${device}`,
      );
    }
    await lab.plan(window);
    expect((await planned(id)).toSorted((a, b) => a - b)).toEqual(devices);
    const users = await lab.recipients(id);
    expect(await progress(id)).toMatchObject({ recipients: users.length });
    expect(users).toEqual(expect.arrayContaining(["a-user-before-all-others", "zz-user-after-all-others"]));
    expect(new Set(users).size).toBe(users.length);
  });

  test("a user with more devices than a step looks at has one entry, wherever the steps end", async () => {
    const devices = await lab.addDevices(
      Array.from({ length: 45 }, (_, index) => ({ userId: index < 8 ? "before" : "with many" })),
    );
    const id = await lab.accept();
    await lab.plan(window);
    expect((await planned(id)).toSorted((a, b) => a - b)).toEqual(devices);
    expect((await lab.recipients(id)).toSorted()).toEqual(["before", "with many"]);
  });

  test("devices registered after it began are not followed", async () => {
    const devices = await manyDevices();
    const id = await lab.accept();
    await planSteps(2);
    await lab.addDevices([{ userId: "late" }]);
    await lab.plan(window);
    await expectAllOnce(id, devices);
  });

  test("paused meanwhile: it stops, and goes on when it is resumed", async () => {
    const devices = await manyDevices();
    const id = await lab.accept();
    await planSteps(3);
    await lab.notifications.pause(id);
    expect(await rangesLeft()).toBe(1);
    await lab.plan(window);
    expect(await progress(id)).toMatchObject({ state: "PAUSED", planned: 30, remaining: 30 });
    expect(await rangesLeft(), "it is not even split").toBe(1);
    expect(new Set((await lab.chunks(id)).map(({ state }) => state))).toEqual(new Set(["PENDING"]));
    expect(await lab.waiting(planQueue)).toEqual([]);
    expect(await lab.notifications.resume(id)).toMatchObject({ state: "PLANNING" });
    await lab.plan(window);
    await expectAllOnce(id, devices);
  });

  test("cancelled meanwhile: nothing more is planned", async () => {
    await manyDevices();
    const id = await lab.accept();
    await planSteps(3);
    await lab.notifications.cancel(id);
    expect(await rangesLeft(), "its job removes it").toBe(1);
    await lab.plan(window);
    expect(await progress(id)).toMatchObject({ state: "CANCELLED", planned: 30, dropped: 30, remaining: 0 });
    expect(await lab.waiting(planQueue)).toEqual([]);
    expect(await rangesLeft()).toBe(0);
  });

  test("cancelled while it is paused: what was parked is removed", async () => {
    await manyDevices();
    const id = await lab.accept();
    await lab.notifications.pause(id);
    await lab.plan(window);
    expect(await rangesLeft()).toBe(1);
    await lab.notifications.cancel(id);
    expect(await rangesLeft()).toBe(0);
  });

  test("a range whose job was lost gets another by the sweep, once it is planned again", async () => {
    const devices = await manyDevices();
    const id = await lab.accept();
    await sweepCompletions(lab);
    expect(await lab.waiting(followQueue), "it has a job").toEqual([]);
    await lab.notifications.pause(id);
    await lab.plan(window);
    await sweepCompletions(lab);
    expect(await lab.waiting(followQueue), "it is paused").toEqual([]);
    await lab.db.execute(sql`update push.notifications set state = 'PLANNING' where id = ${id}::uuid`);
    await sweepCompletions(lab);
    await lab.follow();
    await lab.plan(window);
    await expectAllOnce(id, devices);
  });

  test("paused and resumed before the job comes: the range keeps its job", async () => {
    const devices = await manyDevices();
    const id = await lab.accept();
    await planSteps(1);
    await lab.notifications.pause(id);
    await lab.notifications.resume(id);
    expect(await lab.waiting(planRestQueue)).toEqual([{ notificationId: id }]);
    await lab.plan(window);
    await expectAllOnce(id, devices);
  });

  test.runIf(backend === "PostgreSQL")("paused in the middle of a step: the step is undone", async () => {
    const devices = await manyDevices();
    const id = await lab.accept();
    await planSteps(1);
    const { db } = await lab.own.open();
    const common = { jobs: lab.jobs, clock: lab.clock, ttlSeconds: 60, testUserIds: [] };
    const others = createNotifications({ ...common, db, logger: lab.log.logger });
    const pausing = betweenStatements(lab.db, async (text) => {
      if (text.includes('"chunks" = "chunks" +')) await others.pause(id);
    });
    await planner(undefined, pausing).handle(await lab.takePlanJob());
    expect(await progress(id)).toMatchObject({ state: "PAUSED", planned: 10 });
    // The rest still has its job, which comes later.
    expect([await lab.waiting(planRestQueue), await rangesLeft()]).toEqual([[{ notificationId: id }], 2]);
    await lab.notifications.resume(id);
    await lab.plan(window);
    await expectAllOnce(id, devices);
  });

  test("a user who is forgotten while it runs keeps no history", async () => {
    await manyDevices();
    const forget = (userId: string) => lab.db.transaction((tx) => forgetUser(tx, userId, afterwards));
    const id = await lab.accept();
    const job = await lab.takePlanJob();
    const users = Array.from({ length: 40 }, (_, index) => `user-${index}`);
    await Promise.all([
      planner()
        .handle(job)
        .then(() => lab.plan(window)),
      ...users.map((user) => forget(user)),
    ]);
    expect(await lab.recipients(id)).toEqual([]);
  });

  test("the n-th chunks of all notifications come together; test runs come first", async () => {
    await lab.addDevices(Array.from({ length: 30 }, (_, index) => ({ userId: `user-${index}` })));
    await lab.addDevices([{ userId: testUser }]);
    const large = await lab.accept([0]);
    await lab.plan(window);
    const small = await lab.accept([0]);
    await lab.plan();
    await lab.notifications.startTestRun();
    await lab.plan();
    const [largest, smallest] = [await lab.chunks(large), await lab.chunks(small)];
    const [test] = (await lab.notifications.list({ page: 0, size: 10 })).content.filter((one) => one.test);
    const [tested] = test ? await lab.chunks(test.id) : [];
    const order = (await lab.waiting(deliveryQueue("outbox"))).map(({ chunkId }) => String(chunkId));
    expect(order).toEqual([tested, largest[0], smallest[0], ...largest.slice(1)].map((chunk) => chunk?.id));
  });

  test("jobs of notifications that are gone are ended", async () => {
    await lab.accept();
    await lab.db.execute(sql`delete from push.notifications`);
    await lab.plan();
    expect(await rows(lab.db, sql`select state from push_jobs.job where name = ${planQueue}`)).toEqual([
      { state: "completed" },
    ]);
  });

  test("a worker of the queue plans what was accepted", async () => {
    await manyDevices();
    const { handle } = planner();
    const workers = [planQueue, planRestQueue].map((queue) =>
      lab.jobs.work<PlanJob>({ queue, handle, idleMs: 10 }),
    );
    const id = await lab.accept();
    await expect.poll(async () => (await progress(id)).state).toBe("SENDING");
    for (const worker of workers) await worker.stop();
    expect(await progress(id)).toMatchObject({ planned: 100, recipients: 40 });
  });
});
