/** Pause, resume, cancel and the end of a notification, and the progress that shows them: it adds up at each step. */
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { completeIfDone } from "../../../src/push/notifications/complete-notification.ts";
import { createFollower } from "../../../src/push/notifications/follower.ts";
import { startPlanners } from "../../../src/push/notifications/plan-notification.ts";
import type { NotificationProgress } from "../../../src/push/notifications/progress.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { allProviders, createLab, type Lab } from "./notification-lab.ts";

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
  async function sending(window?: number): Promise<string> {
    for (const utcOffset of [0, 60, 120]) {
      await lab.addDevices([
        { userId: `a${utcOffset}`, utcOffset },
        { userId: `b${utcOffset}`, utcOffset },
      ]);
    }
    const id = await lab.accept([0, 60, 120]);
    await lab.plan(window);
    return id;
  }
  /** As a worker takes a chunk, and writes it down at the end: one failed, the others sent. */
  const take = (chunk: string | undefined) => lab.takeChunk(chunk);
  const finish = (chunk: string | undefined) =>
    lab.db.execute(sql`
      update push.delivery_chunks set state = 'DONE', sent = planned - 1, failed = 1, failures = '{"410": 1}', device_ids = '{}', process_id = null
      where id = ${chunk ?? ""}::bigint`);
  const states = async (id: string) => (await lab.chunks(id)).map(({ state }) => state);
  async function progress(id: string): Promise<NotificationProgress> {
    const found = await lab.notifications.get(id);
    for (const one of [found, ...found.breakdown]) {
      expect(one.planned).toBe(one.sent + one.failed + one.dropped + one.deadLettered + one.remaining);
    }
    return found;
  }

  /** As workers set chunks aside whose notification is paused. */
  const park = async (chunks: readonly (string | undefined)[]) => {
    const ids = `{${chunks.join(",")}}`;
    await lab.db.execute(
      sql`update push.delivery_chunks set state = 'PARKED' where id = any(${ids}::bigint[])`,
    );
  };
  /** Adds chunks of one device each, as planning does. */
  const addChunks = (id: string, count: number) =>
    lab.db.execute(sql`
      insert into push.delivery_chunks (notification_id, provider, utc_offset, turn, device_ids, planned)
      select ${id}::uuid, 'outbox', 0, 0, array[n], 1 from generate_series(1, ${count}::int) n`);

  test("paused and resumed: what a worker has, and what was not its turn, is left as it is", async () => {
    const id = await sending();
    const [first, second, third] = (await lab.chunks(id)).map((chunk) => chunk.id);
    await take(first);
    expect(await lab.notifications.pause(id)).toMatchObject({ state: "PAUSED", remaining: 6 });
    expect(await states(id)).toEqual(["TAKEN", "READY", "READY"]);
    expect(await lab.notifications.pause(id)).toMatchObject({ state: "PAUSED" });
    await park([third]);
    expect(await states(id)).toEqual(["TAKEN", "READY", "PARKED"]);
    expect(await lab.notifications.resume(id)).toMatchObject({ state: "SENDING" });
    expect(await states(id)).toEqual(["TAKEN", "READY", "READY"]);
    expect(await lab.ready()).toEqual([second, third]);
    expect(await lab.notifications.resume(id)).toMatchObject({ state: "SENDING" });
    expect(await states(id)).toEqual(["TAKEN", "READY", "READY"]);
  });

  test("however many chunks there are, no call writes more than a thousand of them; the others follow", async () => {
    const id = await sending();
    await addChunks(id, 2_497);
    const all = (await lab.chunks(id)).map((chunk) => chunk.id);
    const count = async (state: string) => (await states(id)).filter((one) => one === state).length;
    await lab.notifications.pause(id);
    await lab.notifications.resume(id);
    expect(await count("READY")).toBe(2_500);

    await lab.notifications.pause(id);
    await park(all);
    await lab.notifications.resume(id);
    expect([await count("READY"), await count("PARKED")]).toEqual([1_000, 1_500]);
    await lab.notifications.pause(id);
    await lab.follow();
    expect(await count("PARKED"), "what is paused again is not released").toBe(1_500);
    await lab.notifications.resume(id);
    await lab.follow();
    expect(await count("READY")).toBe(2_500);

    expect(await lab.notifications.cancel(id)).toMatchObject({
      ...{ state: "CANCELLED", completedAt: null, dropped: 2_503, remaining: 0 },
    });
    expect([await count("DONE"), await count("READY")]).toEqual([1_000, 1_500]);
    await lab.follow();
    expect(await lab.chunks(id), "it is completed").toEqual([]);
    expect(await progress(id)).toMatchObject({ dropped: 2_503, completedAt: expect.any(String) });
  });

  test("released chunks come after those of others that are further ahead in their turn", async () => {
    const id = await sending(2);
    const all = (await lab.chunks(id)).map((chunk) => chunk.id);
    await lab.notifications.pause(id);
    await park(all);
    await lab.notifications.resume(id);
    const other = await lab.accept([60]);
    await lab.plan();
    const [small] = (await lab.chunks(other)).map((chunk) => chunk.id);
    expect(await lab.ready()).toEqual([all[0], small, all[1], all[2]]);
  });

  test("chunks that did not follow are found by the sweep", async () => {
    const going = await sending();
    const stopped = await sending();
    const paused = await sending();
    for (const id of [going, paused]) await park((await lab.chunks(id)).map((chunk) => chunk.id));
    await lab.db.execute(sql`update push.notifications set state = 'CANCELLED' where id = ${stopped}::uuid`);
    await lab.notifications.pause(paused);
    await lab.sweep();
    expect(new Set(await states(going))).toEqual(new Set(["READY"]));
    expect(new Set(await states(paused))).toEqual(new Set(["PARKED"]));
    expect(await progress(stopped)).toMatchObject({ state: "CANCELLED", completedAt: expect.any(String) });
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

  test("cancelled while it is planned: its event has the recipients of all that was planned", async () => {
    const id = await sending();
    // As between two counts of a large one.
    await lab.db.execute(sql`
      update push.notifications set state = 'PLANNING', planned_at = null, recipients = 1 where id = ${id}::uuid`);
    await lab.notifications.cancel(id);
    expect(await lab.events("push.notification.completed.v1")).toMatchObject([
      { notificationId: id, cancelled: true, recipients: 6, planned: 6, dropped: 6 },
    ]);
  });

  test("a paused one is cancelled too, its parked chunks with it", async () => {
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
        const message = `This notification has ended: its state is ${before.state}.`;
        await expect(lab.notifications[act](id)).rejects.toMatchObject({ ...finished, message });
        expect(await progress(id)).toEqual(before);
      }
      for (const id of [unknown, "nonsense", "'; --"]) {
        await expect(lab.notifications[act](id)).rejects.toMatchObject(notFound);
        await expect(lab.notifications.get(id)).rejects.toMatchObject(notFound);
      }
    },
  );

  test("pause and resume in any order, while it is planned, lose and repeat nothing", async () => {
    await lab.addDevices(Array.from({ length: 100 }, (_, index) => ({ userId: `user-${index}` })));
    const id = await lab.accept();
    const workers = startPlanners({ ...lab, logger: lab.log.logger, providers: allProviders, window: 10 });
    for (let turn = 0; turn < 10; turn += 1) {
      await Promise.all([lab.notifications.pause(id), lab.notifications.resume(id), progress(id)]);
    }
    await lab.notifications.resume(id);
    await expect.poll(async () => (await progress(id)).state).toBe("SENDING");
    for (const worker of workers) await worker.stop();
    expect(await progress(id)).toMatchObject({ planned: 100, recipients: 100, remaining: 100 });
    const chunks = await lab.chunks(id);
    expect(new Set(chunks.flatMap(({ devices }) => devices)).size).toBe(100);
    expect((await lab.ready()).toSorted()).toEqual(chunks.map((chunk) => chunk.id).toSorted());
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
    await lab.sweep();
    const found = await Promise.all([done, open, planning].map(progress));
    expect(found.map(({ state }) => state)).toEqual(["COMPLETED", "SENDING", "PLANNING"]);
    for (const { id } of await lab.chunks(open)) await finish(id);
    const follower = createFollower({ ...lab, logger: lab.log.logger, intervalSeconds: 0.02 }).start();
    await expect.poll(async () => (await progress(open)).state).toBe("COMPLETED");
    await follower.stop();
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
    await take(taken);
    const [stuck] = (await lab.chunks(cancelled)).map((chunk) => chunk.id);
    await take(stuck);
    await lab.notifications.cancel(cancelled);
    await lab.notifications.pause(paused);
    const expire = (id: string, minutes: number) =>
      lab.db.execute(sql`
        update push.notifications set expires_at = now() - make_interval(mins => ${minutes}::int)
        where id = ${id}::uuid`);
    for (const id of [late, paused, cancelled]) await expire(id, 61);
    await expire(recent, 59);
    await lab.sweep();
    expect(await progress(late)).toMatchObject({ state: "COMPLETED", dropped: 6, remaining: 0 });
    expect(await progress(cancelled)).toMatchObject({
      ...{ state: "CANCELLED", dropped: 24, completedAt: expect.any(String) },
    });
    expect(await progress(recent)).toMatchObject({ state: "SENDING", dropped: 0, remaining: 12 });
    expect(await progress(paused)).toMatchObject({ state: "COMPLETED", dropped: 18, remaining: 0 });
    expect(await lab.events("push.notification.completed.v1")).toHaveLength(3);
  });

  test("what a completed one has done stays counted, by offset, provider and reason, and its chunks go", async () => {
    const id = await sending();
    const [dead, ...done] = (await lab.chunks(id)).map((chunk) => chunk.id);
    for (const chunk of done) await finish(chunk);
    await lab.db.execute(
      sql`update push.delivery_chunks set state = 'DEAD' where id = ${dead ?? ""}::bigint`,
    );
    const before = await progress(id);
    const failures = await lab.notifications.failures(id);
    expect(failures).toEqual([{ provider: "outbox", reason: "410", devices: 2 }]);
    expect(await completeIfDone(lab.db, id, lab.clock)).toBe(true);
    const completedAt = new Date(lab.clock.now()).toISOString();
    expect(await progress(id)).toEqual({ ...before, state: "COMPLETED", completedAt });
    expect(await lab.notifications.failures(id)).toEqual(failures);
    expect((await lab.chunks(id)).map((chunk) => chunk.id)).toEqual([dead]);
    // What it does after a replay is added.
    await lab.notifications.replay(dead ?? "");
    await finish(dead);
    expect(await completeIfDone(lab.db, id, lab.clock)).toBe(true);
    expect(await progress(id)).toMatchObject({ planned: 6, sent: 3, failed: 3, deadLettered: 0 });
    expect(await lab.notifications.failures(id)).toMatchObject([{ devices: 3 }]);
    expect(await lab.chunks(id)).toEqual([]);
    expect(await lab.events("push.notification.completed.v1")).toMatchObject([
      { planned: 6, sent: 2, failed: 2, deadLettered: 2 },
      { planned: 6, sent: 3, failed: 3, deadLettered: 0 },
    ]);
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
});
