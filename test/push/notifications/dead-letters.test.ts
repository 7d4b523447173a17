/** Dead letters: listed, and sent again. */
import { setTimeout } from "node:timers/promises";
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { completeIfDone } from "../../../src/push/notifications/complete-notification.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { createLab, type Lab, ttlSeconds } from "./notification-lab.ts";

const notFound = { kind: { code: "dead_letter_not_found", status: 404 } };
const finished = (how: string) => ({
  kind: { code: "notification_finished", status: 409 },
  message: `This notification has ended: ${how}.`,
});

describe.each(backends)("dead letters on %s", (backend) => {
  let lab: Lab;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createLab(backend);
    cleanup.defer(() => lab.drop());
  });
  beforeEach(() => lab.clear());

  /** A notification with one chunk of two devices. */
  async function oneChunk(): Promise<{ id: string; chunk: string }> {
    await lab.addDevices([{ userId: "ann" }, { userId: "bob" }]);
    const id = await lab.accept();
    await lab.plan();
    const [chunk] = await lab.chunks(id);
    return { id, chunk: chunk?.id ?? "" };
  }
  const giveUp = (chunk: string) =>
    lab.db.execute(sql`
      update push.delivery_chunks
      set state = 'DEAD', sent = 1, device_ids = device_ids[2:], reason = 'too many errors', retries = 7, first_attempt_at = now()
      where id = ${chunk}::bigint`);
  const progress = (id: string) => lab.notifications.get(id);
  const list = async () => (await lab.notifications.deadLetters({ page: 0, size: 10 })).content;
  test("they are listed with what they hold, page by page", async () => {
    const { id, chunk } = await oneChunk();
    expect(await lab.notifications.deadLetters({ page: 0, size: 10 })).toMatchObject({
      content: [],
      totalElements: 0,
    });
    await giveUp(chunk);
    expect(await lab.notifications.deadLetters({ page: 0, size: 10 })).toEqual({
      content: [
        {
          ...{
            id: chunk,
            notificationId: id,
            provider: "outbox",
            utcOffset: 0,
            devices: 1,
            reason: "too many errors",
          },
          since: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
        },
      ],
      ...{ number: 0, size: 10, totalElements: 1 },
    });
    expect(await lab.notifications.deadLetters({ page: 1, size: 10 })).toMatchObject({
      content: [],
      totalElements: 1,
    });
  });

  test("those given up last come first", async () => {
    await lab.addDevices([{ userId: "ann" }, { userId: "bob", utcOffset: 60 }]);
    const id = await lab.accept([0, 60]);
    await lab.plan();
    const [first, second] = (await lab.chunks(id)).map((chunk) => chunk.id);
    await lab.db.execute(sql`
      update push.delivery_chunks set state = 'DEAD', updated_at = now() - make_interval(mins => (id - ${first ?? ""}::bigint)::int)`);
    expect((await list()).map((dead) => dead.id)).toEqual([first, second]);
    expect((await lab.notifications.deadLetters({ page: 0, size: 1 })).content).toMatchObject([
      { id: first },
    ]);
  });

  test("one that is sent again has all its tries, and its notification goes on", async () => {
    const { id, chunk } = await oneChunk();
    await giveUp(chunk);
    expect(await completeIfDone(lab.db, id, lab.clock)).toBe(true);
    expect(await progress(id)).toMatchObject({ state: "COMPLETED", sent: 1, deadLettered: 1, remaining: 0 });
    expect(await lab.events("push.notification.completed.v1")).toMatchObject([
      { planned: 2, sent: 1, deadLettered: 1 },
    ]);
    await lab.notifications.replay(chunk);
    expect(await progress(id)).toMatchObject({
      state: "SENDING",
      completedAt: null,
      deadLettered: 0,
      remaining: 1,
    });
    expect(await lab.ready()).toEqual([chunk]);
    expect(await completeIfDone(lab.db, id, lab.clock)).toBe(false);
    expect(
      await rows(
        lab.db,
        sql`select state, retries, first_attempt_at as first, reason from push.delivery_chunks`,
      ),
    ).toEqual([{ state: "READY", retries: 0, first: null, reason: null }]);
    expect(await list()).toEqual([]);
  });

  test.runIf(backend === "PostgreSQL")(
    "one that is sent again while its notification is being completed keeps it open",
    async () => {
      const { id, chunk } = await oneChunk();
      await giveUp(chunk);
      let completing: Promise<boolean> | undefined;
      await lab.db.transaction(async (tx) => {
        await tx.execute(sql`select 1 from push.notifications where id = ${id}::uuid for update`);
        completing = completeIfDone(lab.db, id, lab.clock);
        // Until it waits for the lock.
        await setTimeout(200);
        await tx.execute(sql`update push.delivery_chunks set state = 'READY' where id = ${chunk}::bigint`);
      });
      expect(await completing).toBe(false);
      expect(await progress(id)).toMatchObject({ state: "SENDING", remaining: 1 });
    },
  );

  test.runIf(backend === "PostgreSQL")(
    "one that another replay sends again meanwhile is left to it",
    async () => {
      const { id, chunk } = await oneChunk();
      await giveUp(chunk);
      const other = await lab.own.open();
      let replaying: Promise<unknown> | undefined;
      await other.db.transaction(async (tx) => {
        await tx.execute(sql`select 1 from push.notifications where id = ${id}::uuid for update`);
        replaying = lab.notifications.replay(chunk).catch((error: unknown) => error);
        const waits = sql`select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
        await expect.poll(() => rows(tx, waits)).toHaveLength(1);
        await tx.execute(sql`update push.delivery_chunks set state = 'READY' where id = ${chunk}::bigint`);
      });
      expect(await replaying).toMatchObject(notFound);
      expect(await lab.chunks(id)).toMatchObject([{ state: "READY" }]);
    },
  );

  test("of 20 parallel replays of one the first has it sent", async () => {
    const { chunk } = await oneChunk();
    await giveUp(chunk);
    const outcomes = await Promise.allSettled(
      Array.from({ length: 20 }, () => lab.notifications.replay(chunk)),
    );
    expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    expect(await lab.ready()).toEqual([chunk]);
  });

  test("that of a paused notification is not sent before it is resumed", async () => {
    const { id, chunk } = await oneChunk();
    await giveUp(chunk);
    await lab.notifications.pause(id);
    await lab.notifications.replay(chunk);
    expect(await progress(id)).toMatchObject({ state: "PAUSED", deadLettered: 0, remaining: 1 });
    await lab.notifications.resume(id);
    expect(await lab.ready()).toEqual([chunk]);
  });

  test("that of a cancelled or expired notification is refused, and stays", async () => {
    const { id, chunk } = await oneChunk();
    await giveUp(chunk);
    lab.clock.move(ttlSeconds);
    await expect(lab.notifications.replay(chunk)).rejects.toMatchObject(finished("it has expired"));
    lab.clock.move(-ttlSeconds);
    await lab.notifications.cancel(id);
    await expect(lab.notifications.replay(chunk)).rejects.toMatchObject(finished("its state is CANCELLED"));
    expect(await progress(id)).toMatchObject({ state: "CANCELLED", deadLettered: 1 });
    expect(await lab.ready()).toEqual([]);
  });

  test("what is none is not found", async () => {
    const { chunk } = await oneChunk();
    for (const id of [chunk, "0", "-1", "1e3", "99999999999999999999", "9999999999", "x", "'; --", ""]) {
      await expect(lab.notifications.replay(id)).rejects.toMatchObject(notFound);
    }
    expect(await lab.ready()).toEqual([chunk]);
  });
});
