/** Many dead letters are sent again at one call: each once, in steps, and only those that were asked for. */
import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { completeIfDone } from "../../../src/push/notifications/complete-notification.ts";
import { replayStep } from "../../../src/push/notifications/dead-letters.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";
import { createLab, type Lab, ttlSeconds } from "./notification-lab.ts";

describe.each(backends)("replaying dead letters on %s", (backend) => {
  let lab: Lab;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createLab(backend);
    cleanup.defer(() => lab.drop());
  });
  beforeEach(async () => {
    await lab.clear();
    await lab.addDevices([
      { userId: "ann", provider: "fcm" },
      { userId: "bob", provider: "fcm", utcOffset: 60 },
      { userId: "cid" },
      { userId: "dan", utcOffset: 60 },
    ]);
  });

  /** A completed notification whose chunks, one of each provider and offset, are all dead letters. */
  async function allDead(): Promise<string> {
    const id = await lab.accept([0, 60]);
    await lab.plan();
    await giveUp(id);
    await completeIfDone(lab.db, id, lab.clock);
    return id;
  }
  const giveUp = async (id: string) => {
    await lab.db.execute(sql`
      update push.delivery_chunks set state = 'DEAD', reason = '500', retries = 7, first_attempt_at = now()
      where notification_id = ${id}::uuid and state <> 'DONE'`);
  };
  /** Does the steps that wait. @returns how many there were */
  async function work(stepSize?: number, afterEach: () => Promise<unknown> = async () => undefined) {
    let steps = 0;
    for (; await replayStep(lab.db, lab.clock, stepSize); steps += 1) await afterEach();
    return steps;
  }
  const dead = async () => (await lab.notifications.deadLetters({ page: 0, size: 100 })).content;
  const state = async (id: string) => (await lab.notifications.get(id)).state;
  const waiting = async () => [...(await lab.ready("fcm")), ...(await lab.ready("outbox"))].length;

  test("all are sent again, with all their tries, and their notifications go on", async () => {
    const [first, second] = [await allDead(), await allDead()];
    expect(await dead()).toHaveLength(8);
    expect(await state(first)).toBe("COMPLETED");
    await lab.notifications.replayAll({});
    expect(await dead(), "it is done in the background").toHaveLength(8);
    expect(await work()).toBe(1);
    expect(await dead()).toEqual([]);
    for (const id of [first, second]) {
      expect(await lab.notifications.get(id)).toMatchObject({
        state: "SENDING",
        completedAt: null,
        remaining: 4,
      });
    }
    expect(await waiting()).toBe(8);
    expect(
      await rows(
        lab.db,
        sql`select distinct retries, reason, first_attempt_at as first from push.delivery_chunks`,
      ),
    ).toEqual([{ retries: 0, reason: null, first: null }]);
  });

  test("they come after what was not tried before, each notification's in their order", async () => {
    const [first, second] = [await allDead(), await allDead()];
    await lab.notifications.replayAll({});
    await work();
    const fresh = await lab.accept([0, 60]);
    await lab.plan();
    const ids = async (id: string) =>
      (await lab.chunks(id)).filter(({ provider }) => provider === "fcm").map((chunk) => chunk.id);
    const order = await lab.ready("fcm");
    expect(order.slice(0, 2)).toEqual(await ids(fresh));
    for (const id of [first, second]) {
      const own = await ids(id);
      expect(order.filter((chunkId) => own.includes(chunkId))).toEqual(own);
    }
    const [one = ""] = await ids(fresh);
    await lab.db.execute(sql`update push.delivery_chunks set state = 'DEAD' where id = ${one}::bigint`);
    await lab.notifications.replay(one);
    expect((await lab.ready("fcm")).indexOf(one)).toBeGreaterThan(0);
  });

  test("those of a notification, of a provider, or of both", async () => {
    const [first, second] = [await allDead(), await allDead()];
    await lab.notifications.replayAll({ notificationId: first, provider: "fcm" });
    await work();
    expect((await dead()).filter(({ notificationId }) => notificationId === first)).toMatchObject([
      { provider: "outbox" },
      { provider: "outbox" },
    ]);
    expect(await state(second)).toBe("COMPLETED");
    await lab.notifications.replayAll({ provider: "fcm" });
    await work();
    expect((await dead()).map(({ provider }) => provider)).toEqual(["outbox", "outbox", "outbox", "outbox"]);
    await lab.notifications.replayAll({ notificationId: second });
    await work();
    expect((await dead()).map(({ notificationId }) => notificationId)).toEqual([first, first]);
  });

  test("in steps of a bounded number, in which each is replayed once, though it is given up again", async () => {
    const id = await allDead();
    await lab.notifications.replayAll({});
    const steps = await work(1, () =>
      lab.db.execute(sql`update push.delivery_chunks set state = 'DEAD' where state = 'READY'`),
    );
    // The last step finds that nothing is left.
    expect(steps).toBe(5);
    expect(await dead()).toHaveLength(4);
    expect(await lab.chunks(id)).toHaveLength(4);
  });

  test("those of a cancelled or expired notification stay, those of a paused one wait", async () => {
    const expired = await allDead();
    lab.clock.move(ttlSeconds);
    const [cancelled, paused] = [await lab.accept([0, 60]), await lab.accept([0, 60])];
    await lab.plan();
    for (const id of [cancelled, paused]) await giveUp(id);
    await lab.notifications.cancel(cancelled);
    await lab.notifications.pause(paused);
    await lab.notifications.replayAll({});
    await work();
    const left = new Set((await dead()).map(({ notificationId }) => notificationId));
    expect(left).toEqual(new Set([expired, cancelled]));
    const states = [await state(expired), await state(cancelled), await state(paused)];
    expect(states).toEqual(["COMPLETED", "CANCELLED", "PAUSED"]);
    // They are parked by whoever meets them.
    expect(await waiting()).toBe(4);
    lab.clock.move(-ttlSeconds);
  });

  // The embedded database has one connection, so its transactions never wait for each other.
  test.runIf(backend === "PostgreSQL")(
    "a replay waits for a cancellation in progress, and sends nothing of what it cancels",
    async () => {
      const id = await lab.accept([0, 60]);
      await lab.plan();
      await giveUp(id);
      await lab.notifications.replayAll({});
      const other = await lab.own.open();
      const isWaiting = sql`
        select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
      let isDone = false;
      let replaying: Promise<unknown> | undefined;
      await other.db.transaction(async (tx) => {
        await tx.execute(sql`
          update push.notifications set state = 'CANCELLED', completed_at = now() where id = ${id}::uuid`);
        replaying = work().finally(() => {
          isDone = true;
        });
        // Without waiting, it is done while the cancellation is not.
        await waitFor(async () => expect(isDone || (await rows(tx, isWaiting)).length > 0).toBe(true));
      });
      await replaying;
      await other.close();
      expect(await dead()).toHaveLength(4);
      expect(await waiting()).toBe(0);
    },
  );

  test("it can be repeated, and where there are none nothing is done", async () => {
    await lab.notifications.replayAll({});
    expect(await work()).toBe(0);
    await allDead();
    await lab.notifications.replayAll({});
    await lab.notifications.replayAll({});
    await work();
    expect(await waiting()).toBe(4);
    await lab.notifications.replayAll({});
    expect(await work()).toBe(0);
  });

  test("a notification that does not exist is not found", async () => {
    const unknown = lab.notifications.replayAll({ notificationId: randomUUID() });
    await expect(unknown).rejects.toMatchObject({ kind: { code: "notification_not_found" } });
  });
});
