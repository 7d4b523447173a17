/** Planning: which devices are planned, in which chunks, and in which order. */
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createPlanner, startPlanners } from "../../../src/push/notifications/plan-notification.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { allProviders, testUser } from "./notification-lab.ts";
import { betweenStatements, createPlanningLab, type PlanningLab, window } from "./planning-lab.ts";

describe.each(backends)("planning on %s", (backend) => {
  let lab: PlanningLab;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createPlanningLab(backend);
    cleanup.defer(() => lab.drop());
  });
  beforeEach(() => lab.clear());

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
      { utcOffset: -60, provider: "outbox", state: "READY", devices: [d] },
      { utcOffset: 0, provider: "fcm", state: "READY", devices: [a, c] },
      { utcOffset: 330, provider: "apns", state: "READY", devices: [b] },
    ]);
    for (const { id: chunk, provider } of chunks) {
      expect(await lab.ready(provider)).toEqual([chunk]);
    }
    expect(await lab.recipients(id)).toEqual(["ann", "bob", "cid"]);
    expect(await lab.progress(id)).toMatchObject({
      state: "SENDING",
      recipients: 3,
      planned: 4,
      remaining: 4,
    });
    expect(await lab.rangesLeft()).toBe(0);
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
    await lab.notificationsOf(lab.db).startTestRun();
    const [{ testRun } = { testRun: "" }] = await rows<{ testRun: string }>(
      lab.db,
      sql`select id::text as "testRun" from push.notifications where audience_kind = 'TEST'`,
    );
    await lab.plan(2, ["fcm", "webpush"]);
    expect((await lab.planned(id)).toSorted((one, other) => one - other)).toEqual([a, d]);
    expect(await lab.planned(testRun)).toEqual([d]);
    expect(await lab.recipients(id)).toEqual(["ann", testUser]);
    expect(await lab.recipients(testRun)).toEqual([testUser]);
    // Only devices that nobody serves: it ends all the same.
    await lab.db.execute(sql`delete from push.devices where provider <> 'apns'`);
    const nobody = await lab.accept();
    await lab.plan(2, ["fcm", "webpush"]);
    expect(await lab.progress(nobody)).toMatchObject({ state: "COMPLETED", recipients: 0, planned: 0 });
  });

  test("chunks have at most 1,000 devices, and those of a step are even", async () => {
    await lab.addDevices(Array.from({ length: 3_500 }, (_, index) => ({ userId: `user-${index}` })));
    const id = await lab.accept();
    await lab.plan();
    expect((await lab.chunks(id)).map(({ planned }) => planned)).toEqual([1_000, 833, 833, 834]);
  });

  test("steps do not matter: each device once, each user once", async () => {
    const devices = await lab.manyDevices();
    const id = await lab.accept();
    await lab.plan(window);
    await lab.expectAllOnce(id, devices);
  });

  test("nobody to send to: it is completed at once", async () => {
    const id = await lab.accept([15]);
    await lab.plan();
    expect(await lab.progress(id)).toMatchObject({ state: "COMPLETED", recipients: 0, planned: 0 });
    expect(await lab.events("push.notification.completed.v1")).toMatchObject([
      { notificationId: id, planned: 0 },
    ]);
  });

  test("notifications take turns: one to few users does not wait for one to many", async () => {
    await lab.manyDevices();
    await lab.addDevices([{ userId: "few", utcOffset: 60 }]);
    const large = await lab.accept();
    await lab.planSteps(3);
    const small = await lab.accept([60]);
    await lab.planSteps(1);
    expect(await lab.progress(small)).toMatchObject({ state: "SENDING", planned: 1 });
    expect(await lab.progress(large)).toMatchObject({ state: "PLANNING", planned: 30 });
  });

  test("the first step is small, whatever the others are", async () => {
    await lab.addDevices(Array.from({ length: 2_500 }, (_, index) => ({ userId: `user-${index}` })));
    const id = await lab.accept();
    const plan = createPlanner({ ...lab, providers: allProviders });
    await plan(await lab.takeRange());
    expect(await lab.progress(id)).toMatchObject({ state: "PLANNING", planned: 1_000 });
    await plan(await lab.takeRange());
    expect(await lab.progress(id)).toMatchObject({ state: "SENDING", planned: 2_500 });
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
    expect(await lab.ready()).toEqual(
      [tested, largest[0], smallest[0], ...largest.slice(1)].map((chunk) => chunk?.id),
    );
  });

  test("recipients are counted exactly while it is planned, when it is stopped, and at the end", async () => {
    const plan = createPlanner({ ...lab, providers: allProviders, window: 1 });
    await lab.addDevices(Array.from({ length: 15 }, (_, index) => ({ userId: `user-${index}` })));
    const id = await lab.accept();
    for (let step = 0; step < 13; step += 1) await plan(await lab.takeRange());
    expect(await lab.progress(id)).toMatchObject({ planned: 13, recipients: 13 });
    await lab.notifications.pause(id);
    await lab.plan(1);
    expect(await lab.progress(id)).toMatchObject({ state: "PAUSED", planned: 13, recipients: 13 });
    await lab.notifications.resume(id);
    await lab.plan(1);
    expect(await lab.progress(id)).toMatchObject({ state: "SENDING", planned: 15, recipients: 15 });
    const recalled = await lab.accept();
    for (let step = 0; step < 3; step += 1) await plan(await lab.takeRange());
    expect(await lab.notifications.recall(recalled)).toMatchObject({ recipients: 3 });
  });

  test("ranges of notifications that are gone are removed", async () => {
    await lab.accept();
    await lab.db.execute(sql`delete from push.notifications`);
    await lab.plan();
    expect(await lab.rangesLeft()).toBe(0);
  });

  test("workers plan what was accepted, and what could not be planned again and again", async () => {
    await lab.addDevices([{ userId: "ann" }]);
    let broken = true;
    const db = betweenStatements(lab.db, async (text) => {
      if (broken && text.includes("push.plan")) throw new Error("the database is broken");
    });
    const { logger } = lab.log;
    const workers = startPlanners({ ...lab, db, logger, providers: allProviders, window });
    const id = await lab.accept();
    const told = () => lab.log.lines().filter(({ notificationId }) => notificationId === id);
    const failure = { msg: "A notification could not be planned yet", retryAfterSeconds: 60 };
    await expect.poll(told).toMatchObject([failure]);
    await lab.makeDue();
    await expect.poll(told).toMatchObject([failure, failure]);
    broken = false;
    await lab.makeDue();
    await expect.poll(async () => (await lab.progress(id)).state).toBe("SENDING");
    const nobody = await lab.accept([15]);
    await expect.poll(() => lab.log.text()).toContain("A notification has reached nobody");
    for (const worker of workers) await worker.stop();
    expect(await lab.progress(id)).toMatchObject({ planned: 1, recipients: 1 });
    expect(await lab.progress(nobody)).toMatchObject({ state: "COMPLETED" });
  });
});
