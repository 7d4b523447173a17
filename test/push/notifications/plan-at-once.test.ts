/** Small notifications to users are planned as they are accepted, whoever else is deleted meanwhile. */
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { lowestUuidv7, uuidv7 } from "../../../src/platform/crypto/random.ts";
import { forgetUser } from "../../../src/push/devices/remove-devices.ts";
import { removeEntries } from "../../../src/push/history/remove-entries.ts";
import { newNotification, plainRequest } from "../../../src/push/notifications/accept-notification.ts";
import { planAtOnce } from "../../../src/push/notifications/plan-at-once.ts";
import { storeNotification } from "../../../src/push/notifications/store-notification.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { allProviders as providers, ttlSeconds } from "./notification-lab.ts";
import { createPlanningLab, type PlanningLab } from "./planning-lab.ts";

const daySeconds = 24 * 60 * 60;
/** When an identity was deleted: after all that the test has registered. */
const afterwards = new Date("2100-01-01");

describe.each(backends)("planning at once on %s", (backend) => {
  let lab: PlanningLab;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createPlanningLab(backend);
    cleanup.defer(() => lab.drop());
  });
  beforeEach(() => lab.clear());

  const atOnce = (users: readonly string[]) => lab.acceptTo({ users }, { providers });
  const ofUser = (userId: string, count: number) => Array.from({ length: count }, () => ({ userId }));

  test("its chunks and entries are there when it is accepted, in the first turn", async () => {
    const [a, b] = await lab.addDevices([...ofUser("ann", 2), ...ofUser("bob", 1)]);
    const id = await atOnce(["ann", "nobody"]);
    expect(await lab.planned(id)).toEqual([a, b]);
    expect(await lab.recipients(id)).toEqual(["ann"]);
    expect(await lab.progress(id)).toMatchObject({
      state: "SENDING",
      recipients: 1,
      planned: 2,
      remaining: 2,
    });
    expect(await lab.ready()).toEqual((await lab.chunks(id)).map((chunk) => chunk.id));
    expect(await lab.rangesLeft()).toBe(0);
    const silent = await lab.acceptTo({ users: ["ann", "bob"] }, { providers, history: false });
    expect(await lab.recipients(silent)).toEqual([]);
    expect(await lab.progress(silent)).toMatchObject({ recipients: 2, planned: 3 });
  });

  test("one to nobody is completed, with its event", async () => {
    const id = await atOnce(["nobody"]);
    expect(await lab.progress(id)).toMatchObject({ state: "COMPLETED", recipients: 0, planned: 0 });
    expect(await lab.events("push.notification.completed.v1")).toMatchObject([{ notificationId: id }]);
  });

  test("one whose users are all excluded is completed, however many they are, and whatever their devices", async () => {
    const many = Array.from({ length: 101 }, (_, index) => `u-${index}`);
    await lab.addDevices(ofUser("ann", 101));
    for (const users of [many, ["ann"]]) {
      const except = [{ utcOffsets: [60] }];
      const id = await lab.acceptTo({ users, except, exceptUsers: users }, { providers });
      expect(await lab.progress(id)).toMatchObject({ state: "COMPLETED", recipients: 0, planned: 0 });
    }
  });

  test("one with more than 100 users or devices is planned in its turn", async () => {
    const devices = await lab.addDevices([...ofUser("ann", 60), ...ofUser("bob", 41)]);
    const many = await atOnce(["ann", "bob"]);
    const users = await atOnce(["ann", ...Array.from({ length: 100 }, (_, index) => `u-${index}`)]);
    for (const id of [many, users])
      expect(await lab.progress(id)).toMatchObject({ state: "PLANNING", planned: 0 });
    await lab.plan();
    expect((await lab.planned(many)).toSorted((x, y) => x - y)).toEqual(devices);
    expect((await lab.planned(users)).toSorted((x, y) => x - y)).toEqual(devices.slice(0, 60));
  });

  test.runIf(backend === "PostgreSQL")(
    "the deletion of another user goes on beside it, and one of its own is planned after it",
    async () => {
      const [a] = await lab.addDevices([...ofUser("ann", 1), ...ofUser("bob", 1)]);
      const other = await lab.own.open();
      const own = await other.db.transaction(async (tx) => {
        await forgetUser(tx, "bob", afterwards);
        expect(await lab.planned(await atOnce(["ann"]))).toEqual([a]);
        return atOnce(["bob", "ann"]);
      });
      expect(await lab.progress(own)).toMatchObject({ state: "PLANNING", planned: 0 });
      await lab.plan();
      expect(await lab.planned(own)).toEqual([a]);
      expect(await lab.recipients(own)).toEqual(["ann"]);
    },
  );

  test.runIf(backend === "PostgreSQL")(
    "a user whose last entry is removed meanwhile, as it is too old, is not lost with it",
    async () => {
      await lab.addDevices([{ userId: "ann", expiresInSeconds: 20 * daySeconds }]);
      await atOnce(["ann"]);
      lab.clock.move(10 * daySeconds);
      const oldestKept = lowestUuidv7(lab.clock.now() - daySeconds * 1000);
      const other = await lab.own.open();
      const now = lab.clock.now();
      const request = plainRequest({ title: "", message: "", image: null }, { users: ["ann"] });
      const sent = newNotification({
        ...{ id: uuidv7(now), now, kind: "USERS", clientId: "backoffice", request, ttlSeconds },
      });
      await lab.db.transaction(async (tx) => {
        await storeNotification(tx, sent);
        await planAtOnce(tx, sent, providers, sent.acceptedAt);
        const removing = other.db.transaction(async (janitor) => {
          await janitor.execute(sql`set local lock_timeout = '100ms'`);
          return removeEntries(janitor, oldestKept);
        });
        await expect(removing, "it waits").rejects.toThrow();
      });
      expect(await other.db.transaction((tx) => removeEntries(tx, oldestKept))).toMatchObject({
        ...{ entries: 1, users: 0 },
      });
      expect(await lab.recipients(sent.id)).toEqual(["ann"]);
    },
  );
});
