/** Test runs: anybody may ask for one, so a thousand calls start one, and only the configured users get it. */
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createTestRuns } from "../../../src/push/notifications/test-run.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { createLab, type Lab, testUser, ttlSeconds } from "./notification-lab.ts";

describe.each(backends)("test runs on %s", (backend) => {
  let lab: Lab;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createLab(backend);
    cleanup.defer(() => lab.drop());
  });
  beforeEach(async () => {
    lab.clock.move(3_600);
    await lab.clear();
  });

  const runs = async () => (await lab.notifications.list({ page: 0, size: 10 })).content;
  /** The trigger of another process. */
  const another = (testUserIds: readonly string[] = [testUser], db = lab.db) =>
    createTestRuns({ ...lab, db, ttlSeconds, testUserIds, logger: lab.log.logger });

  /** Time goes by for the service and for the database. */
  async function pass(seconds: number): Promise<void> {
    lab.clock.move(seconds);
    await lab.db.execute(
      sql`update push.test_runs set started_at = started_at - make_interval(secs => ${seconds}::int)`,
    );
  }

  test.each(["paused", "expired"])("a run that is %s holds up no other", async (how) => {
    await lab.addDevices([{ userId: testUser }]);
    await lab.notifications.startTestRun();
    await lab.plan();
    const [run] = await runs();
    if (how === "paused") await lab.notifications.pause(run?.id ?? "");
    else await lab.db.execute(sql`update push.notifications set expires_at = now() - interval '1 second'`);
    await pass(61);
    await lab.notifications.startTestRun();
    expect(await runs()).toHaveLength(2);
  });

  test("a process with a wrong clock starts none within the minute", async () => {
    await lab.notifications.startTestRun();
    await lab.plan();
    lab.clock.move(86_400);
    await another()();
    expect(await runs()).toHaveLength(1);
  });

  test("the configured users get it on all their devices, and nobody else", async () => {
    const [a, b] = await lab.addDevices([{ userId: testUser }, { userId: testUser, utcOffset: 330 }]);
    await lab.addDevices([{ userId: "ann" }, { userId: testUser, expiresInSeconds: 0 }]);
    await lab.notifications.startTestRun();
    await lab.plan();
    const [run] = await runs();
    expect(run).toMatchObject({
      title: "Test notification",
      test: true,
      state: "SENDING",
      recipients: 1,
      planned: 2,
    });
    expect((await lab.chunks(run?.id ?? "")).flatMap(({ devices }) => devices)).toEqual([a, b]);
    expect(await lab.recipients(run?.id ?? "")).toEqual([testUser]);
    expect(await lab.events("push.notification.accepted.v1")).toEqual([
      { notificationId: run?.id, clientId: "", utcOffsets: [], test: true },
    ]);
  });

  test("1,000 parallel calls start one run", async () => {
    const triggers = [another(), another(), another(), another()];
    await Promise.all(Array.from({ length: 1_000 }, (_, index) => triggers[index % 4]?.()));
    expect(await runs()).toHaveLength(1);
  });

  test.runIf(backend === "PostgreSQL")("so do those of many processes at the same moment", async () => {
    const other = await lab.own.open();
    const triggers = Array.from({ length: 40 }, (_, index) =>
      another([testUser], index % 2 ? lab.db : other.db),
    );
    await Promise.all(triggers.map((trigger) => trigger()));
    expect(await runs()).toHaveLength(1);
  });

  test("a call while the last run has not ended joins it, however long that takes", async () => {
    await lab.addDevices([{ userId: testUser }]);
    await lab.notifications.startTestRun();
    await lab.plan();
    await pass(600);
    await lab.notifications.startTestRun();
    expect(await runs()).toHaveLength(1);
  });

  test("a call within a minute of the last run starts nothing, even if that has ended; after it, one more", async () => {
    await lab.notifications.startTestRun();
    await lab.plan();
    expect(await runs()).toMatchObject([{ state: "COMPLETED" }]);
    await pass(59);
    await Promise.all([lab.notifications.startTestRun(), another()()]);
    expect(await runs()).toHaveLength(1);
    await pass(1);
    await Promise.all([lab.notifications.startTestRun(), another()()]);
    expect(await runs()).toHaveLength(2);
  });

  test("without users nothing is started, which is logged once", async () => {
    const trigger = another([]);
    for (let call = 0; call < 3; call += 1) await trigger();
    expect(await runs()).toEqual([]);
    expect(lab.log.text().split("Test runs have no recipients")).toHaveLength(2);
  });
});
