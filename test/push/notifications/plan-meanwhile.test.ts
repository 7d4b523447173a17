/** Planning: each device once, each user one history entry, whatever happens meanwhile. */
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { forgetUser } from "../../../src/push/devices/remove-devices.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { betweenStatements, createPlanningLab, type PlanningLab, window } from "./planning-lab.ts";

/** When the identity was deleted: after all that the test has registered. */
const afterwards = new Date("2100-01-01");

describe.each(backends)("planning, meanwhile, on %s", (backend) => {
  let lab: PlanningLab;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createPlanningLab(backend);
    cleanup.defer(() => lab.drop());
  });
  beforeEach(() => lab.clear());

  test("a planner that dies between steps: the next one goes on where it was", async () => {
    const devices = await lab.manyDevices();
    const id = await lab.accept();
    for (const steps of [1, 0, 3, 2]) {
      await lab.planSteps(steps);
      await lab.dieInStep();
      const { planned: sum, breakdown } = await lab.progress(id);
      expect(sum).toBe((await lab.planned(id)).length);
      expect(breakdown.reduce((total, share) => total + share.remaining, 0)).toBe(sum);
    }
    expect(await lab.planned(id)).toHaveLength(60);
    await lab.plan(window);
    await lab.expectAllOnce(id, devices);
  });

  test.runIf(backend === "PostgreSQL")(
    "a connection that ends within a step takes only that step with it",
    async () => {
      const devices = await lab.manyDevices();
      const id = await lab.accept();
      await lab.planSteps(2);
      const range = await lab.takeRange();
      await expect(lab.planner(() => lab.own.terminate())(range)).rejects.toThrow();
      // The other connections ended too, and some statements find that out.
      await expect.poll(() => lab.planned(id).catch(() => [])).toHaveLength(20);
      await lab.makeDue();
      await lab.plan(window);
      await lab.expectAllOnce(id, devices);
    },
  );

  test("two planners that have the same range plan nothing twice", async () => {
    const devices = await lab.manyDevices();
    const id = await lab.accept();
    const range = await lab.takeRange();
    await Promise.all([lab.planner()(range), lab.planner()(range)]);
    await lab.plan(window);
    await lab.expectAllOnce(id, devices);
    expect(await lab.progress(id)).toMatchObject({ state: "SENDING" });
  });

  test("a range that another has taken since is left to it: whoever took it first plans nothing", async () => {
    const devices = await lab.manyDevices();
    const id = await lab.accept();
    const late = await lab.takeRange();
    await lab.makeDue();
    const next = await lab.takeRange();
    expect(next).toEqual({ ...late, tries: late.tries + 1 });
    await lab.planner()(late);
    expect(await lab.planned(id)).toEqual([]);
    expect(await lab.rangesLeft()).toBe(1);
    await lab.planner()(next);
    await lab.plan(window);
    await lab.expectAllOnce(id, devices);
  });

  test("a range that was taken by a process that died is due again after ten seconds, and not earlier", async () => {
    const devices = await lab.manyDevices();
    const id = await lab.accept();
    await lab.takeRange();
    await expect(lab.takeRange()).rejects.toThrow("no range is due");
    const pass = (seconds: number) =>
      lab.db.execute(
        sql`update push.plan_ranges set due_at = due_at - make_interval(secs => ${seconds}::int)`,
      );
    await pass(5);
    await expect(lab.takeRange()).rejects.toThrow("no range is due");
    await pass(5);
    await lab.plan(window);
    await lab.expectAllOnce(id, devices);
  });

  test("several processes plan one notification at once, and nothing twice", async () => {
    const devices = await lab.manyDevices();
    const id = await lab.accept();
    await lab.planSteps(1);
    await Promise.all(Array.from({ length: 4 }, () => lab.plan(3)));
    await lab.expectAllOnce(id, devices);
    expect(await lab.progress(id)).toMatchObject({ state: "SENDING" });
    const chunks = await lab.chunks(id);
    expect((await lab.ready()).toSorted()).toEqual(chunks.map((chunk) => chunk.id).toSorted());
  });

  test.runIf(backend === "PostgreSQL")(
    "a device that comes to a zone where nobody was, in the middle of a step, is not missed",
    async () => {
      const devices = await lab.manyDevices();
      const id = await lab.accept();
      let isMoved = false;
      const db = betweenStatements(lab.db, async (text) => {
        if (isMoved || !text.includes("push.plan")) return;
        isMoved = true;
        await lab.db.execute(
          sql`update push.devices set time_zone = 'Africa/Accra' where id = ${devices[4]}::bigint`,
        );
      });
      await lab.planner(undefined, db)(await lab.takeRange());
      expect(isMoved).toBe(true);
      await lab.plan(window);
      await lab.expectAllOnce(id, devices);
    },
  );

  test("devices that change offset or user meanwhile are planned once, and their users have one entry", async () => {
    const devices = await lab.manyDevices();
    const id = await lab.accept([0, 60]);
    await lab.planSteps(4);
    // Those planned and those not yet planned alike: other offsets, other hands.
    await lab.db.execute(sql`update push.devices set utc_offset = 60 where id % 2 = 0`);
    await lab.db.execute(sql`update push.devices set user_id = 'user-1' where id % 5 = 0`);
    await lab.plan(window);
    expect((await lab.planned(id)).toSorted((a, b) => a - b)).toEqual(devices);
    const users = await lab.recipients(id);
    expect(new Set(users).size).toBe(users.length);
    expect(await lab.progress(id)).toMatchObject({ planned: 100, recipients: users.length });
  });

  test("a device that comes to another user before it is planned is planned, and that user has an entry", async () => {
    const devices = await lab.manyDevices();
    const id = await lab.accept();
    await lab.planSteps(2);
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
    expect((await lab.planned(id)).toSorted((a, b) => a - b)).toEqual(devices);
    const users = await lab.recipients(id);
    expect(await lab.progress(id)).toMatchObject({ recipients: users.length });
    expect(users).toEqual(expect.arrayContaining(["a-user-before-all-others", "zz-user-after-all-others"]));
    expect(new Set(users).size).toBe(users.length);
  });

  test("a user with more devices than a step looks at has one entry, wherever the steps end", async () => {
    const devices = await lab.addDevices(
      Array.from({ length: 45 }, (_, index) => ({ userId: index < 8 ? "before" : "with many" })),
    );
    const id = await lab.accept();
    await lab.plan(window);
    expect((await lab.planned(id)).toSorted((a, b) => a - b)).toEqual(devices);
    expect((await lab.recipients(id)).toSorted()).toEqual(["before", "with many"]);
  });

  test("devices registered after it began are not followed", async () => {
    const devices = await lab.manyDevices();
    const id = await lab.accept();
    await lab.planSteps(2);
    await lab.addDevices([{ userId: "late" }]);
    await lab.plan(window);
    await lab.expectAllOnce(id, devices);
  });

  test("paused meanwhile: it stops, and goes on when it is resumed", async () => {
    const devices = await lab.manyDevices();
    const id = await lab.accept();
    await lab.planSteps(3);
    await lab.notifications.pause(id);
    expect(await lab.rangesLeft()).toBe(1);
    await lab.plan(window);
    expect(await lab.progress(id)).toMatchObject({ state: "PAUSED", planned: 30, remaining: 30 });
    expect(await lab.rangesLeft(), "it is not even split").toBe(1);
    await lab.makeDue();
    await expect(lab.takeRange(), "it is parked").rejects.toThrow("no range is due");
    expect(await lab.notifications.resume(id)).toMatchObject({ state: "PLANNING" });
    await lab.plan(window);
    await lab.expectAllOnce(id, devices);
  });

  test("cancelled meanwhile: nothing more is planned", async () => {
    await lab.manyDevices();
    const id = await lab.accept();
    await lab.planSteps(3);
    await lab.notifications.cancel(id);
    expect(await lab.rangesLeft(), "who takes it removes it").toBe(1);
    await lab.plan(window);
    expect(await lab.progress(id)).toMatchObject({
      state: "CANCELLED",
      planned: 30,
      dropped: 30,
      remaining: 0,
    });
    expect(await lab.rangesLeft()).toBe(0);
  });

  test("cancelled while it is paused: what was parked is removed", async () => {
    await lab.manyDevices();
    const id = await lab.accept();
    await lab.notifications.pause(id);
    await lab.plan(window);
    expect(await lab.rangesLeft()).toBe(1);
    await lab.notifications.cancel(id);
    expect(await lab.rangesLeft()).toBe(0);
  });

  test("a parked range that was not released is found by the sweep", async () => {
    const devices = await lab.manyDevices();
    const id = await lab.accept();
    await lab.notifications.pause(id);
    await lab.plan(window);
    await lab.sweep();
    await expect(lab.takeRange(), "it is paused").rejects.toThrow("no range is due");
    await lab.db.execute(sql`update push.notifications set state = 'PLANNING' where id = ${id}::uuid`);
    await lab.sweep();
    await lab.plan(window);
    await lab.expectAllOnce(id, devices);
  });

  test("a range that was taken before the database's clock was set back by an hour is found by the sweep", async () => {
    const devices = await lab.manyDevices();
    const id = await lab.accept();
    await lab.db.execute(sql`update push.plan_ranges set due_at = now() + interval '61 minutes'`);
    await lab.sweep();
    await lab.plan(window);
    await lab.expectAllOnce(id, devices);
  });

  test("paused and resumed before it is taken: the range is as it was", async () => {
    const devices = await lab.manyDevices();
    const id = await lab.accept();
    await lab.planSteps(1);
    await lab.notifications.pause(id);
    await lab.notifications.resume(id);
    await lab.plan(window);
    await lab.expectAllOnce(id, devices);
  });

  test.runIf(backend === "PostgreSQL")("paused in the middle of a step: the step is undone", async () => {
    const devices = await lab.manyDevices();
    const id = await lab.accept();
    await lab.planSteps(1);
    const { db } = await lab.own.open();
    const others = lab.notificationsOf(db);
    let isPaused = false;
    const pausing = lab.planner(async () => {
      if (!isPaused) await others.pause(id);
      isPaused = true;
    });
    await pausing(await lab.takeRange());
    expect(await lab.progress(id)).toMatchObject({ state: "PAUSED", planned: 10 });
    // The rest is due, and parked by whoever takes it.
    expect(await lab.rangesLeft()).toBe(2);
    await lab.notifications.resume(id);
    await lab.plan(window);
    await lab.expectAllOnce(id, devices);
  });

  test("a user who is forgotten while it runs keeps no history", async () => {
    await lab.manyDevices();
    const forget = (userId: string) => lab.db.transaction((tx) => forgetUser(tx, userId, afterwards));
    const id = await lab.accept();
    const range = await lab.takeRange();
    const users = Array.from({ length: 40 }, (_, index) => `user-${index}`);
    await Promise.all([
      lab
        .planner()(range)
        .then(() => lab.plan(window)),
      ...users.map((user) => forget(user)),
    ]);
    expect(await lab.recipients(id)).toEqual([]);
  });
});
