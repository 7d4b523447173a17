/** Planning on two axes, of devices and of named users: what changes meanwhile, where steps end, who is forgotten. */
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { forgetUser } from "../../../src/push/devices/remove-devices.ts";
import { endOfDevices } from "../../../src/push/notifications/plan-audience.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { allProviders } from "./notification-lab.ts";
import { createPlanningLab, type PlanningLab, window } from "./planning-lab.ts";

const byId = (a: number, b: number) => a - b;

describe.each(backends)("planning on two axes on %s", (backend) => {
  let lab: PlanningLab;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createPlanningLab(backend);
    cleanup.defer(() => lab.drop());
  });
  beforeEach(() => lab.clear());

  const speak = (language: string, which = sql`true`) =>
    lab.db.execute(sql`update push.devices set language = ${language} where ${which}`);
  const namedUsers = async () =>
    (
      await rows<{ user: string }>(
        lab.db,
        sql`select user_id as user from push.notification_users order by 1`,
      )
    ).map(({ user }) => user);

  test.each(["DEVICES", "USERS"])(
    "a device that changes its user or is renewed is planned once: %s first",
    async (axis) => {
      const devices = await lab.manyDevices();
      await speak("de-Latn");
      const named = ["user-0", "user-1", "user-2"];
      const id = await lab.acceptTo({ users: named, anyOf: [{ languages: ["de"] }] });
      const hidden = sql`case when axis = ${axis} then now() else now() + interval '9 s' end`;
      await lab.db.execute(sql`update push.plan_ranges set due_at = ${hidden}`);
      await lab.planSteps(1);
      const before = await lab.planned(id);
      expect(before.length).toBeGreaterThan(5);
      const [planned, ahead] = [before[0], devices.findLast((one) => !before.includes(one))];
      const moved = [
        await lab.handOver(planned, axis === "USERS" ? "user-9" : "user-1"),
        await lab.handOver(ahead, "user-2"),
      ];
      await speak("en-Latn", sql`id = ${before[1] ?? 0}`);
      await lab.makeDue();
      await lab.plan(window);
      const all = (await lab.planned(id)).sort(byId);
      expect(all).toEqual(devices.filter((one) => one !== ahead));
      expect(moved.filter((one) => all.includes(one))).toEqual([]);
    },
  );

  test.each(["DEVICES", "USERS"])(
    "a user who comes back before push learns of the deletion is planned once: %s first",
    async (axis) => {
      const devices = await lab.addDevices([{ userId: "ann" }, { userId: "bob" }]);
      const id = await lab.acceptTo({ users: ["ann"], everybody: true });
      const hidden = sql`case when axis = ${axis} then now() else now() + interval '9 s' end`;
      await lab.db.execute(sql`update push.plan_ranges set due_at = ${hidden}`);
      await lab.planSteps(1);
      await lab.db.execute(sql`update push.devices set renewed_at = now() + interval '2 minutes'`);
      await lab.db.transaction((tx) => forgetUser(tx, "ann", new Date()));
      await lab.makeDue();
      await lab.plan(window);
      expect((await lab.planned(id)).sort(byId)).toEqual(devices);
    },
  );

  test("users are planned 500 at a time, each in one range, and with what was theirs at acceptance", async () => {
    const users = Array.from({ length: 1_100 }, (_, index) => `user-${index}`);
    const devices = await lab.addDevices(users.map((userId) => ({ userId })));
    const id = await lab.acceptTo({ users });
    await lab.addDevices([{ userId: "user-7" }]);
    for (const sum of [500, 1_000]) {
      await lab.planSteps(1);
      expect(await lab.progress(id)).toMatchObject({ state: "PLANNING", planned: sum, recipients: sum });
    }
    await lab.plan();
    expect((await lab.planned(id)).sort(byId)).toEqual(devices);
    expect(await lab.progress(id)).toMatchObject({ state: "SENDING", recipients: 1_100 });
    expect((await lab.chunks(id)).map(({ planned }) => planned)).toEqual([500, 500, 100]);
  });

  test("steps end where they have enough devices that match, or have looked at enough", async () => {
    const devices = await lab.manyDevices();
    await speak("de-Latn", sql`id % 10 = 0`);
    const matching = devices.filter((one) => one % 10 === 0);
    const audience = { anyOf: [{ languages: ["de"] }], except: [], everybody: false };
    const notificationId = await lab.acceptTo({ anyOf: [{ languages: ["de"] }] });
    const [after, through] = [(devices[0] ?? 0) - 1, devices.at(-1) ?? 0];
    const step = {
      ...{ notificationId, rangeNumber: 1, after, through },
      providers: allProviders,
      at: new Date(),
    };
    const end = (size: number, mostSeen?: number) =>
      endOfDevices(lab.db, { ...step, audience, zones: undefined, entries: "none" }, size, mostSeen);
    expect(await end(3)).toBe(matching[2]);
    expect(await end(50)).toBe(undefined);
    expect(await end(3, 15)).toBe(devices[14]);
    expect(await end(3, 100)).toBe(matching[2]);
    expect(await end(50, 100)).toBe(undefined);
    await lab.plan(4);
    expect(await lab.planned(notificationId)).toEqual(matching);
  });

  test("who is forgotten is named no more; names go when nothing is left that could be sent", async () => {
    await lab.addDevices([{ userId: "ann" }, { userId: "bob" }, { userId: "cid" }]);
    const id = await lab.acceptTo({ users: ["ann", "bob"], exceptUsers: ["cid"], everybody: true });
    await lab.db.transaction((tx) => forgetUser(tx, "bob", new Date("2100-01-01")));
    expect(await namedUsers()).toEqual(["ann", "cid"]);
    await lab.plan();
    expect(await lab.recipients(id)).toEqual(["ann"]);
    await lab.notifications.cancel(id);
    await lab.follow();
    expect(await lab.progress(id)).toMatchObject({ state: "CANCELLED", remaining: 0 });
    expect(await namedUsers()).toEqual([]);
  });
});
