/** Pause, resume, cancel and the end of a notification, and the progress that shows them: it adds up at each step. */
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { type PlanJob, planQueue } from "../../../src/push/database.ts";
import {
  completeIfDone,
  startCompletionSweep,
  sweepCompletions,
} from "../../../src/push/notifications/complete-notification.ts";
import { createPlanner } from "../../../src/push/notifications/plan-notification.ts";
import type { NotificationProgress } from "../../../src/push/notifications/progress.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { allProviders, createLab, type Lab, never } from "./notification-lab.ts";

const queue = "deliver-outbox";
const finished = { kind: { code: "notification_finished", status: 409 } };
const notFound = { kind: { code: "notification_not_found", status: 404 } };
const unknown = "019a9f00-0000-7000-8000-000000000000";

describe.each(backends)("control of notifications on %s", (backend) => {
  let lab: Lab;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createLab(backend);
    cleanup.defer(() => lab.drop());
  });
  beforeEach(() => lab.clear());

  /** A notification with 3 chunks of 2 devices, all planned. */
  async function sending(): Promise<string> {
    for (const utcOffset of [0, 60, 120]) {
      await lab.addDevices([
        { userId: `a${utcOffset}`, utcOffset },
        { userId: `b${utcOffset}`, utcOffset },
      ]);
    }
    const id = await lab.accept([0, 60, 120]);
    await lab.plan();
    return id;
  }
  /** As a worker takes a chunk, and writes it down at the end: one failed, the others sent. */
  const take = (chunk: string | undefined) =>
    lab.db.execute(sql`
      update push.delivery_chunks set state = 'SENDING', attempt = attempt + 1 where id = ${chunk ?? ""}::bigint`);
  const finish = (chunk: string | undefined) =>
    lab.db.execute(sql`
      update push.delivery_chunks set state = 'DONE', sent = planned - 1, failed = 1, device_ids = '{}'
      where id = ${chunk ?? ""}::bigint`);
  const states = async (id: string) => (await lab.chunks(id)).map(({ state }) => state);
  async function progress(id: string): Promise<NotificationProgress> {
    const found = await lab.notifications.get(id);
    for (const one of [found, ...found.breakdown]) {
      expect(one.planned).toBe(one.sent + one.failed + one.dropped + one.deadLettered + one.remaining);
    }
    return found;
  }

  test("paused: no chunk waits for a job any more but the one in hand; resumed: each has its job again", async () => {
    const id = await sending();
    const [first, second, third] = (await lab.chunks(id)).map((chunk) => chunk.id);
    await take(first);
    expect(await lab.notifications.pause(id)).toMatchObject({ state: "PAUSED", remaining: 6 });
    expect(await states(id)).toEqual(["SENDING", "HELD", "HELD"]);
    await lab.db.execute(sql`delete from push_jobs.job`);
    expect(await lab.notifications.pause(id)).toMatchObject({ state: "PAUSED" });
    expect(await lab.notifications.resume(id)).toMatchObject({ state: "SENDING" });
    expect(await states(id)).toEqual(["SENDING", "PENDING", "PENDING"]);
    expect(await lab.waiting(queue)).toEqual([{ chunkId: Number(second) }, { chunkId: Number(third) }]);
    expect(await lab.waiting(planQueue)).toEqual([]);
    expect(await lab.notifications.resume(id)).toMatchObject({ state: "SENDING" });
    expect(await lab.waiting(queue)).toHaveLength(2);
  });

  test("paused before it was planned: resumed, it is planned", async () => {
    await lab.addDevices([{ userId: "ann" }]);
    const id = await lab.accept();
    await lab.notifications.pause(id);
    await lab.plan();
    expect(await progress(id)).toMatchObject({ state: "PAUSED", planned: 0 });
    await lab.notifications.resume(id);
    await lab.plan();
    expect(await progress(id)).toMatchObject({ state: "SENDING", planned: 1 });
  });

  test("paused while its last chunk ends: it is completed when it is resumed", async () => {
    const id = await sending();
    const all = (await lab.chunks(id)).map((chunk) => chunk.id);
    for (const chunk of all) await take(chunk);
    await lab.notifications.pause(id);
    for (const chunk of all) await finish(chunk);
    expect(await completeIfDone(lab.db, id, lab.clock)).toBe(false);
    expect(await lab.notifications.resume(id)).toMatchObject({ state: "COMPLETED", sent: 3, failed: 3 });
  });

  test("cancelled: what no worker has in hand is dropped; the end comes with the worker's", async () => {
    const id = await sending();
    const [first, second] = (await lab.chunks(id)).map((chunk) => chunk.id);
    await finish(first);
    await take(second);
    expect(await lab.notifications.cancel(id)).toMatchObject({
      ...{ state: "CANCELLED", completedAt: null, sent: 1, failed: 1, dropped: 2, remaining: 2 },
    });
    await finish(second);
    expect(await completeIfDone(lab.db, id, lab.clock)).toBe(true);
    expect(await progress(id)).toMatchObject({
      ...{
        state: "CANCELLED",
        completedAt: expect.any(String),
        sent: 2,
        failed: 2,
        dropped: 2,
        remaining: 0,
      },
    });
    expect(await lab.events("push.notification.completed.v1")).toEqual([
      {
        ...{ notificationId: id, cancelled: true, recipients: 6, planned: 6 },
        ...{ sent: 2, failed: 2, dropped: 2, deadLettered: 0 },
      },
    ]);
  });

  test("a paused one is cancelled too, its held chunks with it", async () => {
    const id = await sending();
    await lab.notifications.pause(id);
    expect(await lab.notifications.cancel(id)).toMatchObject({
      state: "CANCELLED",
      dropped: 6,
      remaining: 0,
    });
    expect((await progress(id)).completedAt).not.toBeNull();
  });

  test.each(["pause", "resume", "cancel"] as const)(
    "%s of one that has ended, or is none, is refused",
    async (act) => {
      const cancelled = await sending();
      await lab.notifications.cancel(cancelled);
      const completed = await lab.accept([15]);
      await lab.plan();
      for (const id of [cancelled, completed]) {
        const before = await progress(id);
        await expect(lab.notifications[act](id)).rejects.toMatchObject(finished);
        expect(await progress(id)).toEqual(before);
      }
      for (const id of [unknown, "nonsense", "'; --"]) {
        await expect(lab.notifications[act](id)).rejects.toMatchObject(notFound);
        await expect(lab.notifications.get(id)).rejects.toMatchObject(notFound);
      }
    },
  );

  test("a job that cannot be promised leaves a paused notification as it is", async () => {
    const id = await sending();
    await lab.notifications.pause(id);
    const enqueue = vi.spyOn(lab.jobs, "enqueue").mockRejectedValueOnce(new Error("no jobs today"));
    await expect(lab.notifications.resume(id)).rejects.toThrow("no jobs today");
    enqueue.mockRestore();
    expect(await progress(id)).toMatchObject({ state: "PAUSED" });
    expect(new Set(await states(id))).toEqual(new Set(["HELD"]));
  });

  test("pause and resume in any order, while it is planned, lose and repeat nothing", async () => {
    await lab.addDevices(Array.from({ length: 100 }, (_, index) => ({ userId: `user-${index}` })));
    const id = await lab.accept();
    const { handle } = createPlanner({
      ...{ db: lab.db, jobs: lab.jobs, clock: lab.clock, providers: allProviders, window: 10 },
    });
    const worker = lab.jobs.work<PlanJob>({
      queue: planQueue,
      handle: (job) => handle(job, never),
      idleMs: 5,
    });
    for (let turn = 0; turn < 10; turn += 1) {
      await Promise.all([lab.notifications.pause(id), lab.notifications.resume(id), progress(id)]);
    }
    await lab.notifications.resume(id);
    await expect.poll(async () => (await progress(id)).state).toBe("SENDING");
    await worker.stop();
    expect(await progress(id)).toMatchObject({ planned: 100, recipients: 100, remaining: 100 });
    const chunks = await lab.chunks(id);
    expect(new Set(chunks.flatMap(({ devices }) => devices)).size).toBe(100);
    expect(new Set(chunks.map(({ state }) => state))).toEqual(new Set(["PENDING"]));
    const promised = new Set((await lab.waiting(queue)).map(({ chunkId }) => String(chunkId)));
    expect(chunks.every((chunk) => promised.has(chunk.id))).toBe(true);
  });

  test("however many see the last chunk end, it is completed once, with one event of its totals", async () => {
    const id = await sending();
    const all = (await lab.chunks(id)).map((chunk) => chunk.id);
    for (const chunk of all.slice(1)) await finish(chunk);
    expect(await completeIfDone(lab.db, id, lab.clock)).toBe(false);
    await finish(all[0]);
    const seen = await Promise.all(Array.from({ length: 10 }, () => completeIfDone(lab.db, id, lab.clock)));
    expect(seen.filter(Boolean)).toHaveLength(1);
    expect(await progress(id)).toMatchObject({
      ...{
        state: "COMPLETED",
        completedAt: new Date(lab.clock.now()).toISOString(),
        planned: 6,
        sent: 3,
        failed: 3,
      },
    });
    expect(await lab.events("push.notification.completed.v1")).toEqual([
      {
        ...{ notificationId: id, cancelled: false, recipients: 6, planned: 6 },
        ...{ sent: 3, failed: 3, dropped: 0, deadLettered: 0 },
      },
    ]);
  });

  test("what a process that died left to complete is found by the sweep; what goes on is left alone", async () => {
    const done = await sending();
    for (const { id } of await lab.chunks(done)) await finish(id);
    const open = await sending();
    const planning = await lab.accept();
    expect(await sweepCompletions(lab.db, lab.clock)).toBe(1);
    const found = await Promise.all([done, open, planning].map(progress));
    expect(found.map(({ state }) => state)).toEqual(["COMPLETED", "SENDING", "PLANNING"]);
    for (const { id } of await lab.chunks(open)) await finish(id);
    const common = { db: lab.db, clock: lab.clock, logger: lab.log.logger };
    const sweep = startCompletionSweep({ ...common, intervalSeconds: 0.02 });
    await expect.poll(async () => (await progress(open)).state).toBe("COMPLETED");
    await sweep.stop();
  });

  test("the sweep ends what nobody takes an hour after it is worth nothing, and drops its devices", async () => {
    const [late, recent, paused, cancelled] = [
      await sending(),
      await sending(),
      await sending(),
      await sending(),
    ];
    const [, taken] = (await lab.chunks(late)).map((chunk) => chunk.id);
    // Its worker has died, and those of its provider are no more.
    await lab.db.execute(
      sql`update push.delivery_chunks set state = 'SENDING', attempt = 3 where id = ${taken ?? ""}::bigint`,
    );
    const [stuck] = (await lab.chunks(cancelled)).map((chunk) => chunk.id);
    await lab.db.execute(
      sql`update push.delivery_chunks set state = 'SENDING' where id = ${stuck ?? ""}::bigint`,
    );
    await lab.notifications.cancel(cancelled);
    await lab.notifications.pause(paused);
    const expire = (id: string, minutes: number) =>
      lab.db.execute(sql`
        update push.notifications set expires_at = now() - make_interval(mins => ${minutes}::int)
        where id = ${id}::uuid`);
    for (const id of [late, paused, cancelled]) await expire(id, 61);
    await expire(recent, 59);
    expect(await sweepCompletions(lab.db, lab.clock)).toBe(3);
    expect(await progress(late)).toMatchObject({ state: "COMPLETED", dropped: 6, remaining: 0 });
    expect(await progress(cancelled)).toMatchObject({
      ...{ state: "CANCELLED", dropped: 24, completedAt: expect.any(String) },
    });
    expect(await progress(recent)).toMatchObject({ state: "SENDING", dropped: 0, remaining: 12 });
    expect(await progress(paused)).toMatchObject({ state: "COMPLETED", dropped: 18, remaining: 0 });
    // A worker that wakes up after all writes nothing.
    const [row] = await rows<{ attempt: number }>(
      lab.db,
      sql`select attempt from push.delivery_chunks where id = ${taken ?? ""}::bigint`,
    );
    expect(row?.attempt).toBe(4);
    expect(await lab.events("push.notification.completed.v1")).toHaveLength(3);
  });

  test("progress by offset and provider, of each state of a chunk", async () => {
    const id = await sending();
    const [first, second] = (await lab.chunks(id)).map((chunk) => chunk.id);
    await finish(first);
    await lab.db.execute(sql`
      update push.delivery_chunks set state = 'DEAD', dropped = 1, device_ids = device_ids[2:]
      where id = ${second ?? ""}::bigint`);
    const none = { planned: 2, sent: 0, failed: 0, dropped: 0, deadLettered: 0, remaining: 0 };
    expect(await progress(id)).toMatchObject({
      ...{ planned: 6, sent: 1, failed: 1, dropped: 1, deadLettered: 1, remaining: 2, removalStopped: false },
      breakdown: [
        { utcOffset: 0, provider: "outbox", ...none, sent: 1, failed: 1 },
        { utcOffset: 60, provider: "outbox", ...none, dropped: 1, deadLettered: 1 },
        { utcOffset: 120, provider: "outbox", ...none, remaining: 2 },
      ],
    });
  });

  test("the list has the newest first, page by page, and says how many there are", async () => {
    expect(await lab.notifications.list({ page: 0, size: 2 })).toEqual({
      ...{ content: [], number: 0, size: 2, totalElements: 0 },
    });
    const ids: string[] = [];
    for (let index = 0; index < 3; index += 1) {
      ids.unshift(await lab.accept());
      lab.clock.move(1);
    }
    const pages = await Promise.all([0, 1, 2].map((page) => lab.notifications.list({ page, size: 2 })));
    expect(pages.map(({ content }) => content.map(({ id }) => id))).toEqual([
      ids.slice(0, 2),
      ids.slice(2),
      [],
    ]);
    expect(pages.map(({ totalElements }) => totalElements)).toEqual([3, 3, 3]);
    expect(pages[0]?.content[0]).toEqual(await progress(ids[0] ?? ""));
  });
});
