/** Dead letters: listed, sent again, and never made of what still has a way; jobs that failed lose nobody. */
import { randomUUID } from "node:crypto";
import { setTimeout } from "node:timers/promises";
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Job } from "../../../src/platform/messaging/jobs.ts";
import { failedJobQueue, planQueue } from "../../../src/push/database.ts";
import { completeIfDone } from "../../../src/push/notifications/complete-notification.ts";
import { createFailedJobHandler } from "../../../src/push/notifications/failed-jobs.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { createLab, type Lab, ttlSeconds } from "./notification-lab.ts";

const queue = "deliver-outbox";
const notFound = { kind: { code: "dead_letter_not_found", status: 404 } };
const finished = { kind: { code: "notification_finished", status: 409 } };

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
    await lab.db.execute(sql`delete from push_jobs.job where name = ${queue}`);
    return { id, chunk: chunk?.id ?? "" };
  }
  const giveUp = (chunk: string) =>
    lab.db.execute(sql`
      update push.delivery_chunks
      set state = 'DEAD', job_id = null, sent = 1, device_ids = device_ids[2:], reason = 'too many errors', retries = 7, first_attempt_at = now()
      where id = ${chunk}::bigint`);
  const progress = (id: string) => lab.notifications.get(id);
  const list = async () => (await lab.notifications.deadLetters({ page: 0, size: 10 })).content;
  /** As pg-boss moves a job after its last try. @param failedId that of the chunk or range unless given */
  async function moveToDeadLetters(
    data: { readonly chunkId?: number; readonly notificationId?: string },
    failedId?: string,
  ): Promise<void> {
    await lab.jobs.enqueue(lab.db, failedJobQueue, [{ data }]);
    const ofChunk = sql`(select job_id from push.delivery_chunks where id = ${data.chunkId ?? null}::bigint)`;
    const ofRange = sql`(
      select job_id from push.plan_ranges where notification_id = ${data.notificationId ?? null}::uuid)`;
    await lab.db.execute(sql`
      update push_jobs.job set source_id = coalesce(${failedId ?? null}::uuid, ${ofChunk}, ${ofRange})
      where name = ${failedJobQueue} and source_id is null`);
  }
  async function failForGood(data: object, failedId?: string): Promise<void> {
    const { handle } = createFailedJobHandler({
      ...{ db: lab.db, jobs: lab.jobs, clock: lab.clock, logger: lab.log.logger },
    });
    await moveToDeadLetters(data, failedId);
    await lab.drain(failedJobQueue, (job: Job<object>) => handle(job));
  }

  test("the job that buries one is tried again for as long as it fails", async () => {
    const { id, chunk } = await oneChunk();
    await moveToDeadLetters({ chunkId: Number(chunk) });
    const letter = sql`from push_jobs.job where name = ${failedJobQueue}`;
    await lab.db.execute(sql`update push_jobs.job set retry_count = 5000 where name = ${failedJobQueue}`);
    let isBroken = true;
    const { handle } = createFailedJobHandler({
      ...{ db: lab.db, jobs: lab.jobs, clock: lab.clock, logger: lab.log.logger },
    });
    const worker = lab.jobs.work<{ chunkId: number }>({
      queue: failedJobQueue,
      async handle(job) {
        if (isBroken) throw new Error("the database is broken");
        await handle(job);
      },
      idleMs: 10,
    });
    const state = async () =>
      (
        await rows<{ state: string; wait: number }>(
          lab.db,
          sql`select state::text, extract(epoch from start_after - now())::float8 as wait ${letter}`,
        )
      )[0];
    await expect.poll(async () => (await state())?.state).toBe("retry");
    expect((await state())?.wait).toBeLessThanOrEqual(60);
    isBroken = false;
    await lab.db.execute(sql`update push_jobs.job set start_after = now() where name = ${failedJobQueue}`);
    await expect.poll(async () => (await list()).map((dead) => dead.id)).toEqual([chunk]);
    await worker.stop();
    expect(await progress(id)).toMatchObject({ state: "COMPLETED", deadLettered: 2 });
  });

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
          since: new Date(lab.clock.now()).toISOString(),
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
      update push.delivery_chunks set state = 'DEAD', job_id = null, updated_at = now() - make_interval(mins => (id - ${first ?? ""}::bigint)::int)`);
    expect((await list()).map((dead) => dead.id)).toEqual([first, second]);
    expect((await lab.notifications.deadLetters({ page: 0, size: 1 })).content).toMatchObject([
      { id: first },
    ]);
  });

  test("one that is sent again has a new job and all its tries, and its notification goes on", async () => {
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
    expect(await lab.waiting(queue)).toEqual([{ chunkId: Number(chunk) }]);
    expect(await completeIfDone(lab.db, id, lab.clock)).toBe(false);
    expect(
      await rows(
        lab.db,
        sql`select state, retries, first_attempt_at as first, reason from push.delivery_chunks`,
      ),
    ).toEqual([{ state: "PENDING", retries: 0, first: null, reason: null }]);
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
        await tx.execute(sql`update push.delivery_chunks set state = 'PENDING' where id = ${chunk}::bigint`);
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
        await tx.execute(sql`update push.delivery_chunks set state = 'PENDING' where id = ${chunk}::bigint`);
      });
      expect(await replaying).toMatchObject(notFound);
      expect(await lab.chunks(id)).toMatchObject([{ state: "PARKED" }]);
      expect(await lab.waiting(queue)).toEqual([]);
    },
  );

  test("20 parallel replays of one make one job", async () => {
    const { chunk } = await oneChunk();
    await giveUp(chunk);
    const outcomes = await Promise.allSettled(
      Array.from({ length: 20 }, () => lab.notifications.replay(chunk)),
    );
    expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    expect(await lab.waiting(queue)).toHaveLength(1);
  });

  test("that of a paused notification is parked, and sent when it is resumed", async () => {
    const { id, chunk } = await oneChunk();
    await giveUp(chunk);
    await lab.notifications.pause(id);
    await lab.notifications.replay(chunk);
    expect(await lab.waiting(queue)).toEqual([]);
    await lab.notifications.resume(id);
    expect(await lab.waiting(queue)).toEqual([{ chunkId: Number(chunk) }]);
  });

  test("that of a cancelled or expired notification is refused, and stays", async () => {
    const { id, chunk } = await oneChunk();
    await giveUp(chunk);
    lab.clock.move(ttlSeconds);
    await expect(lab.notifications.replay(chunk)).rejects.toMatchObject(finished);
    lab.clock.move(-ttlSeconds);
    await lab.notifications.cancel(id);
    await expect(lab.notifications.replay(chunk)).rejects.toMatchObject(finished);
    expect(await progress(id)).toMatchObject({ state: "CANCELLED", deadLettered: 1 });
    expect(await lab.waiting(queue)).toEqual([]);
  });

  test("what is none is not found", async () => {
    const { chunk } = await oneChunk();
    for (const id of [chunk, "0", "-1", "1e3", "99999999999999999999", "9999999999", "x", "'; --", ""]) {
      await expect(lab.notifications.replay(id)).rejects.toMatchObject(notFound);
    }
    expect(await lab.waiting(queue)).toEqual([]);
  });

  test.each(["PENDING", "SENDING"])("a %s chunk whose job failed for good becomes one", async (state) => {
    const { id, chunk } = await oneChunk();
    await lab.db.execute(sql`update push.delivery_chunks set state = ${state}, attempt = 5`);
    await failForGood({ chunkId: Number(chunk) });
    expect(await list()).toMatchObject([
      { id: chunk, devices: 2, reason: expect.stringContaining("failed") },
    ]);
    expect(await progress(id)).toMatchObject({ state: "COMPLETED", deadLettered: 2, remaining: 0 });
    // Whoever still has it in hand writes it no more.
    expect(await rows(lab.db, sql`select attempt from push.delivery_chunks`)).toEqual([{ attempt: 6 }]);
    expect(lab.log.text()).toContain("A chunk became a dead letter");
    expect(await lab.waiting(failedJobQueue)).toEqual([]);
  });

  test("a chunk of a paused notification is parked, one of a cancelled is dropped, and one that has ended stays", async () => {
    const { id, chunk } = await oneChunk();
    const [before] = await rows<{ job: string }>(
      lab.db,
      sql`select job_id::text as job from push.delivery_chunks`,
    );
    await lab.notifications.pause(id);
    await failForGood({ chunkId: Number(chunk) });
    expect(await lab.chunks(id)).toMatchObject([{ state: "PARKED" }]);
    await lab.db.execute(sql`
      update push.delivery_chunks set state = 'SENDING', job_id = gen_random_uuid(), sent = 1, device_ids = device_ids[2:]`);
    await lab.db.execute(sql`update push.notifications set state = 'CANCELLED'`);
    await failForGood({ chunkId: Number(chunk) }, before?.job);
    expect(await lab.chunks(id), "it has another job by now").toMatchObject([
      { state: "SENDING", dropped: 0 },
    ]);
    await failForGood({ chunkId: Number(chunk) });
    expect(await lab.chunks(id)).toMatchObject([{ state: "DONE", dropped: 1 }]);
    for (const state of ["DONE", "DEAD"]) {
      await lab.db.execute(
        sql`update push.delivery_chunks set state = ${state}, dropped = 0, device_ids = '{7}'`,
      );
      await failForGood({ chunkId: Number(chunk) });
      expect(await lab.chunks(id)).toMatchObject([{ state, dropped: 0, devices: [7] }]);
    }
    await lab.db.execute(sql`update push.delivery_chunks set state = 'DONE', dropped = 1, device_ids = '{}'`);
    await failForGood({ chunkId: 999_999 });
    expect(await progress(id)).toMatchObject({ state: "CANCELLED", completedAt: expect.any(String) });
    const told = lab.log.lines().filter(({ notificationId }) => notificationId === id);
    expect(told).toEqual([]);
  });

  test("planning that failed for good is tried again, and an error says so", async () => {
    await lab.addDevices([{ userId: "ann" }]);
    const id = await lab.accept();
    await lab.db.execute(sql`delete from push_jobs.job`);
    await failForGood({ notificationId: id }, randomUUID());
    expect(await lab.waiting(planQueue), "the range has another job").toEqual([]);
    await failForGood({ notificationId: id });
    expect(await lab.waiting(planQueue)).toEqual([{ notificationId: id }]);
    expect(lab.log.text()).toContain("A notification could not be planned yet");
    await lab.notifications.pause(id);
    await failForGood({ notificationId: id });
    await lab.db.execute(sql`delete from push_jobs.job where name = ${planQueue}`);
    await lab.notifications.resume(id);
    expect(await lab.waiting(planQueue), "it was parked").toEqual([{ notificationId: id }]);
    await lab.plan();
    expect(await progress(id)).toMatchObject({ planned: 1 });
    await failForGood({ notificationId: id });
    expect(await lab.waiting(planQueue)).toEqual([]);
  });

  test("a job that nobody knows is ended with an error in the log", async () => {
    await failForGood({ nonsense: true });
    expect(await lab.waiting(failedJobQueue)).toEqual([]);
    expect(lab.log.text()).toContain("A job with unknown data");
  });
});
