/** In the middle of a step, which has its range locked, nobody waits for it: neither other workers nor an operator. */
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { OpenDatabase } from "../../../src/platform/database/database.ts";
import { RangeTaker } from "../../../src/push/notifications/ranges.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { createPlanningLab, type PlanningLab, window } from "./planning-lab.ts";

// The embedded database has one connection, so its transactions never wait for each other.
describe.runIf(backends.includes("PostgreSQL"))("locks of planning", () => {
  let lab: PlanningLab;
  /** The database as another process has it open. */
  let other: OpenDatabase;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createPlanningLab("PostgreSQL");
    cleanup.defer(() => lab.drop());
    other = await lab.own.open();
  });
  beforeEach(() => lab.clear());

  test("its notification is paused and resumed meanwhile, and who took the range before plans nothing", async () => {
    const devices = await lab.manyDevices();
    const id = await lab.accept();
    await lab.planSteps(1);
    const late = await lab.takeRange();
    await lab.makeDue();
    const range = await lab.takeRange();
    const others = lab.notificationsOf(other.db);
    let isDone = false;
    const slow = lab.planner(async () => {
      if (isDone) return;
      isDone = true;
      await lab.planner(undefined, other.db)(late);
      await others.pause(id);
      await others.resume(id);
    });
    await slow(range);
    expect(isDone).toBe(true);
    expect(await lab.planned(id)).toHaveLength(20);
    await lab.plan(window);
    await lab.expectAllOnce(id, devices);
  });

  test("nobody takes a range that is in a step, however long that takes", async () => {
    const devices = await lab.manyDevices();
    const id = await lab.accept();
    const range = await lab.takeRange();
    await lab.makeDue();
    const found: (number | undefined)[] = [];
    const slow = lab.planner(async () => {
      for (let take = 0; take < 2; take += 1)
        found.push((await new RangeTaker(other.db).take([-1, 0, 1]))?.range.rangeNumber);
    });
    await slow(range);
    expect(found, "the rest, which was split off").toEqual([1, undefined]);
    await lab.makeDue();
    await lab.plan(window);
    await lab.expectAllOnce(id, devices);
  });
});
