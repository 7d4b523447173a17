/** A notification that is recalled is in nobody's history any more, whatever its state, and is not sent further. */
import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createHistory, type History, type PageRequest } from "../../../src/push/history/history.ts";
import { completeIfDone } from "../../../src/push/notifications/complete-notification.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { createPlanningLab, type PlanningLab } from "./planning-lab.ts";

const newest: PageRequest = { page: 0, size: 20, sort: [] };
const finished = { kind: { code: "notification_finished" } };

describe.each(backends)("recalling on %s", (backend) => {
  let lab: PlanningLab;
  let history: History;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createPlanningLab(backend);
    cleanup.defer(() => lab.drop());
    history = createHistory({ db: lab.db });
  });
  beforeEach(async () => {
    await lab.clear();
    await lab.addDevices([{ userId: "ann" }, { userId: "bob" }]);
  });

  async function planned(): Promise<string> {
    const id = await lab.accept();
    await lab.plan();
    return id;
  }
  /** As if all of its messages had been sent. */
  async function complete(id: string): Promise<void> {
    await lab.db.execute(sql`
      update push.delivery_chunks set state = 'DONE', sent = planned, device_ids = '{}'
      where notification_id = ${id}::uuid`);
    await completeIfDone(lab.db, id, lab.clock);
  }
  /** The ids that the user finds, and whether the user has read everything. */
  async function seenBy(userId: string, request = newest): Promise<[string[], boolean]> {
    const { content, totalElements } = await history.page(userId, request, false);
    expect(totalElements).toBe(content.length);
    return [content.map(({ id }) => id), await history.summary(userId)];
  }

  test("nobody finds it, and nobody's summary counts it; all else stays", async () => {
    const typo = await planned();
    lab.clock.move(1);
    const other = await planned();
    for (const id of [typo, other]) await complete(id);
    await history.page("bob", newest, true);
    expect(await seenBy("ann")).toEqual([[other, typo], false]);
    expect(await lab.notifications.recall(typo)).toMatchObject({
      ...{ id: typo, state: "COMPLETED", sent: 2, recipients: 2 },
      recalledAt: new Date(lab.clock.now()).toISOString(),
    });
    expect(await seenBy("ann")).toEqual([[other], false]);
    expect(await seenBy("bob")).toEqual([[other], true]);
    for (const sort of [["viewed"], ["id,asc"], ["sendAt,asc"]])
      expect((await seenBy("ann", { ...newest, sort }))[0]).toEqual([other]);
    expect(await history.summary("ann", { ...newest, size: 1 })).toBe(false);
    await lab.notifications.recall(other);
    expect(await seenBy("ann")).toEqual([[], true]);
    expect(await history.summary("ann", newest)).toBe(true);
  });

  test("one without a history keeps the number of users found, also while it is planned", async () => {
    const id = await lab.acceptTo({ everybody: true }, { history: false });
    await lab.planner()(await lab.takeRange());
    await lab.db.execute(sql`update push.notifications set state = 'PLANNING', planned_at = null`);
    expect(await lab.notifications.recall(id)).toMatchObject({ recipients: 2, planned: 2 });
  });

  test("one that is being sent, or is paused, is cancelled with it", async () => {
    for (const isPaused of [false, true]) {
      const id = await planned();
      if (isPaused) await lab.notifications.pause(id);
      expect(await lab.notifications.recall(id)).toMatchObject({
        state: "CANCELLED",
        dropped: 2,
        remaining: 0,
      });
      expect(await seenBy("ann")).toEqual([[], true]);
    }
  });

  test("who is found by planning after it gets no entry either", async () => {
    const id = await lab.accept();
    await lab.notifications.recall(id);
    await lab.plan();
    expect(await seenBy("ann")).toEqual([[], true]);
    expect(await lab.notifications.get(id)).toMatchObject({
      state: "CANCELLED",
      completedAt: expect.any(String),
    });
  });

  test("it can be repeated, and the first time stays", async () => {
    const id = await planned();
    const { recalledAt } = await lab.notifications.recall(id);
    lab.clock.move(60);
    expect(await lab.notifications.recall(id)).toMatchObject({ recalledAt, state: "CANCELLED" });
    lab.clock.move(-60);
    expect(await lab.notifications.get(await planned())).toMatchObject({ recalledAt: null });
  });

  test("its dead letters are not replayed", async () => {
    const id = await planned();
    await lab.db.execute(sql`update push.delivery_chunks set state = 'DEAD', reason = '500'`);
    await completeIfDone(lab.db, id, lab.clock);
    await lab.notifications.recall(id);
    const [letter] = (await lab.notifications.deadLetters(newest)).content;
    await expect(lab.notifications.replay(letter?.id ?? "")).rejects.toMatchObject(finished);
    await lab.notifications.replayAll({});
    await lab.follow();
    expect(await lab.notifications.get(id)).toMatchObject({ state: "COMPLETED", deadLettered: 2 });
  });

  test("one that does not exist is not found", async () => {
    const unknown = lab.notifications.recall(randomUUID());
    await expect(unknown).rejects.toMatchObject({ kind: { code: "notification_not_found" } });
  });
});
