/**
 * A worker that has missed its heartbeats still has its step open, and the step's range locked, while its job goes to
 * others: none of them waits for the step with the notification locked, which the step locks last.
 */
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { OpenDatabase } from "../../../src/platform/database/database.ts";
import type { Job } from "../../../src/platform/messaging/jobs.ts";
import { failedJobQueue, planRestQueue } from "../../../src/push/database.ts";
import { createFailedJobHandler } from "../../../src/push/notifications/failed-jobs.ts";
import { createNotifications } from "../../../src/push/notifications/notifications.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { betweenStatements, createPlanningLab, type PlanningLab, window } from "./planning-lab.ts";

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

  /** Waits until somebody waits for a lock. */
  const someoneWaits = () =>
    expect
      .poll(() =>
        rows(
          other.db,
          sql`select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
        ),
      )
      .toHaveLength(1);

  /** A worker that calls `meanwhile` in the middle of its first step, as soon as it is about to lock the notification. */
  function slowWorker(meanwhile: () => Promise<void>) {
    let isDone = false;
    const db = betweenStatements(lab.db, async (text) => {
      if (isDone || !text.includes('"chunks" = "chunks" +')) return;
      isDone = true;
      await meanwhile();
    });
    return lab.planner(undefined, db);
  }

  test("a job that failed for good while its worker goes on: the handler waits, and the range gets a new job", async () => {
    const devices = await lab.manyDevices();
    const id = await lab.accept();
    await lab.planSteps(1);
    const job = await lab.takePlanJob();
    await lab.jobs.enqueue(lab.db, failedJobQueue, [{ data: { notificationId: id } }]);
    await lab.db.execute(sql`
      update push_jobs.job set source_id = ${job.id}::uuid where name = ${failedJobQueue}`);
    const { handle } = createFailedJobHandler({
      ...{ db: other.db, jobs: lab.jobs, clock: lab.clock, logger: lab.log.logger },
    });
    let handling: Promise<unknown> = Promise.resolve();
    const worker = slowWorker(async () => {
      await lab.db.execute(sql`update push_jobs.job set state = 'failed' where id = ${job.id}::uuid`);
      handling = lab.drain(failedJobQueue, (failed: Job<object>) => handle(failed));
      handling.catch(() => undefined);
      await someoneWaits();
    });
    await expect(worker.handle(job)).rejects.toMatchObject({ name: "JobLostError" });
    expect(await handling).toBe(1);
    expect(await lab.waiting(planRestQueue), "it has a new job beside that of the rest").toHaveLength(2);
    await lab.plan(window);
    await lab.expectAllOnce(id, devices);
  });

  test("a job that another worker has by now, of a notification that was paused: it can be resumed meanwhile", async () => {
    const devices = await lab.manyDevices();
    const id = await lab.accept();
    await lab.planSteps(1);
    const job = await lab.takePlanJob();
    const common = { jobs: lab.jobs, clock: lab.clock, ttlSeconds: 60, testUserIds: [] };
    const others = createNotifications({ ...common, db: other.db, logger: lab.log.logger });
    let giving: Promise<unknown> = Promise.resolve();
    const worker = slowWorker(async () => {
      await lab.giveToAnother(job.id);
      await others.pause(id);
      giving = lab.planner(undefined, other.db).handle(await lab.takePlanJob());
      giving.catch(() => undefined);
      await someoneWaits();
      await others.resume(id);
    });
    await expect(worker.handle(job)).rejects.toMatchObject({ name: "JobLostError" });
    // On a busy machine it may have waited for longer than a statement may, and is tried again.
    await giving.catch(() => lab.giveToAnother(job.id));
    await lab.plan(window);
    await lab.expectAllOnce(id, devices);
  });
});
