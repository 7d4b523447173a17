/** Everything that would send by itself is held after a restore, and by one call each it goes on. */
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, test } from "vitest";
import { holdUnfinished, listHeld } from "../../../src/push/notifications/hold.ts";
import { endDueWaits } from "../../../src/push/queue/give-back.ts";
import { Processes } from "../../../src/push/queue/processes.ts";
import { ChunkTaker, isSendable } from "../../../src/push/queue/take-chunks.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { createLab, type Lab, testUser } from "./notification-lab.ts";

describe.each(backends)("holding after a restore on %s", (backend) => {
  let lab: Lab;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createLab(backend);
    cleanup.defer(() => lab.drop());
    await lab.addDevices([
      { userId: testUser },
      { userId: "ann", utcOffset: 60 },
      { userId: "bob", utcOffset: 120 },
    ]);
  });

  /** Plans and takes all that there is to plan and to take. @returns the notifications whose chunks would be sent */
  async function sendable(): Promise<string[]> {
    await lab.plan();
    await lab.follow();
    await endDueWaits(lab.db);
    const { db, log } = lab;
    const processes = new Processes({ db, leases: db, logger: log.logger, released: () => undefined });
    const taken = await new ChunkTaker(db, processes, "outbox").take(100, { chunks: 32, retries: 32 }, []);
    await processes.leave();
    return [...new Set(taken.filter(isSendable).map(({ notificationId }) => notificationId))].sort();
  }
  const set = (id: string, what: ReturnType<typeof sql>) =>
    lab.db.execute(sql`update push.delivery_chunks set ${what} where notification_id = ${id}::uuid`);
  const held = async () => (await listHeld(lab.db)).map(({ id }) => id);

  test("ranges, chunks, their tries, a test run and replays wait; what was paused before is not among them", async () => {
    const dead = await lab.accept();
    await lab.plan();
    await set(dead, sql`state = 'DEAD', reason = '500'`);
    await lab.sweep();
    await lab.notifications.replayAll({});
    const retried = await lab.accept([0, 60, 120]);
    await lab.plan();
    await set(retried, sql`state = 'WAITING', is_retry = true, due_at = now()`);
    const ready = await lab.accept([0, 60]);
    const paused = await lab.accept();
    await lab.plan();
    await lab.notifications.pause(paused);
    const unplanned = await lab.accept();
    await lab.notifications.startTestRun();

    expect(await holdUnfinished(lab.db)).toBe(1);
    const list = await listHeld(lab.db);
    const all = list.map(({ id }) => id);
    const testRun = all.find((id) => ![retried, ready, unplanned].includes(id)) ?? "";
    expect(all).toEqual([retried, ready, unplanned, testRun].sort());
    expect(list.find(({ id }) => id === ready)).toMatchObject({
      ...{ title: "Title", clientId: "backoffice", isPlanned: true, sent: 0, remaining: 2, state: "PAUSED" },
      notice: expect.stringContaining("held"),
    });
    expect(list.find(({ id }) => id === testRun)).toMatchObject({ clientId: null, isPlanned: false });
    expect(await sendable()).toEqual([]);
    expect(await lab.notifications.get(dead)).toMatchObject({ state: "COMPLETED", deadLettered: 1 });
    expect(await holdUnfinished(lab.db)).toBe(0);
    expect(await held()).toEqual(all);

    for (const id of [retried, unplanned, testRun]) await lab.notifications.resume(id);
    expect(await sendable()).toEqual([retried, unplanned, testRun].sort());
    await lab.notifications.cancel(ready);
    expect(await held()).toEqual([]);
    // A pause after the resume is an operator's.
    expect(await lab.notifications.pause(retried)).toMatchObject({ state: "PAUSED", notice: undefined });
    expect(await held()).toEqual([]);
  });
});
