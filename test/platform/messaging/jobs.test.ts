/** Durable jobs: promised with the rows they belong to, done once, and never lost with a worker. */
import { setTimeout as pause } from "node:timers/promises";
import { sql } from "drizzle-orm";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import type { Loop } from "../../../src/platform/base/loop.ts";
import type { OpenDatabase } from "../../../src/platform/database/database.ts";
import {
  createJobs,
  type Job,
  JobLostError,
  type Jobs,
  jobSchema,
} from "../../../src/platform/messaging/jobs.ts";
import { createLogger } from "../../../src/platform/observability/logger.ts";
import { pushMigrations } from "../../../src/push/database.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { createServiceDatabase, type ServiceDatabase } from "../../support/service-database.ts";
import { stopwatch } from "../../support/stopwatch.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const tables = {
  schema: "push_jobs",
  queues: [
    { name: "dead", retryLimit: 0 },
    { name: "work", retryLimit: 1, deadLetter: "dead" },
  ],
};
let warnings = "";
const logger = createLogger({
  level: "warn",
  environment: "production",
  destination: {
    write(line: string) {
      warnings += line;
    },
  },
});

interface Work {
  readonly number: number;
}

describe.each(backends)("jobs on %s", (backend) => {
  let holder: ServiceDatabase;
  let database: OpenDatabase;
  let jobs: Jobs;
  const workers: Loop[] = [];

  const cleanup = suiteCleanup();
  beforeAll(async () => {
    holder = await createServiceDatabase(backend, { ...pushMigrations, librarySchemas: [jobSchema(tables)] });
    cleanup.defer(() => holder.drop());
    database = await holder.open();
    expect(await database.isMigrated()).toBe(false);
    await database.migrate();
    expect(await database.isMigrated()).toBe(true);
    jobs = createJobs({ database, tables, logger });
    cleanup.defer(() => jobs.stop());
    await jobs.start();
  });
  afterEach(async () => {
    await Promise.all(workers.splice(0).map((worker) => worker.stop()));
  });

  /** Starts a worker with a short pause between fetches. */
  function work(queue: string, handle: (job: Job<Work>) => Promise<void>): Loop {
    const worker = jobs.work<Work>({ queue, handle, idleMs: 20 });
    workers.push(worker);
    return worker;
  }
  const complete = (queue: string, job: Job<Work>) =>
    database.db.transaction((tx) => jobs.complete(tx, queue, job));
  const enqueue = (...numbers: number[]) =>
    database.db.transaction((tx) =>
      jobs.enqueue(
        tx,
        "work",
        numbers.map((number) => ({ data: { number } })),
      ),
    );

  it("does a job that was committed, and none that was rolled back", async () => {
    const done: number[] = [];
    const promise = database.db.transaction(async (tx) => {
      await jobs.enqueue(tx, "work", [{ data: { number: 1 } }]);
      throw new Error("undo");
    });
    await expect(promise).rejects.toThrow("undo");
    await enqueue(2);
    work("work", async (job) => {
      done.push(job.data.number);
      await complete("work", job);
    });
    await expect.poll(() => done).toEqual([2]);
    await pause(300);
    expect(done).toEqual([2]);
  });

  it("gives each job to one of several workers, the most urgent first", async () => {
    const done: number[] = [];
    await database.db.transaction((tx) =>
      jobs.enqueue(
        tx,
        "work",
        Array.from({ length: 30 }, (_, number) => ({ data: { number }, priority: number })),
      ),
    );
    for (let count = 0; count < 3; count += 1) {
      work("work", async (job) => {
        done.push(job.data.number);
        await complete("work", job);
      });
    }
    await expect.poll(() => done.length).toBe(30);
    expect(new Set(done).size).toBe(30);
    expect(done.slice(0, 3).every((number) => number > 20)).toBe(true);
  });

  it("wakes the workers of a queue, which then do not wait for their next look", async () => {
    const done: number[] = [];
    const loop = jobs.work<Work>({
      queue: "work",
      idleMs: 600_000,
      async handle(job) {
        done.push(job.data.number);
        await complete("work", job);
      },
    });
    for (const number of [1, 2, 3]) {
      await enqueue(number);
      jobs.wake("work");
      await expect.poll(() => done.at(-1)).toBe(number);
    }
    await loop.stop();
  });

  it("does jobs at once whose handler lets the next one begin, up to a number of them, and ends them all", async () => {
    const begun: number[] = [];
    const ends = Array.from({ length: 5 }, () => Promise.withResolvers<void>());
    await enqueue(0, 1, 2, 3, 4);
    const loop = jobs.work<Work>({
      queue: "work",
      idleMs: 20,
      atOnce: 3,
      async handle(job, _stopping, next) {
        const { number } = job.data;
        begun.push(number);
        if (number > 0) next();
        await ends[number]?.promise;
        await complete("work", job);
      },
    });
    workers.push(loop);
    // The first one lets no other begin.
    await expect.poll(() => begun).toEqual([0]);
    await pause(200);
    expect(begun).toEqual([0]);
    ends[0]?.resolve();
    await expect.poll(() => begun).toEqual([0, 1, 2, 3]);
    await pause(200);
    expect(begun).toHaveLength(4);
    ends[2]?.resolve();
    await expect.poll(() => begun).toHaveLength(5);
    let isStopped = false;
    const stopping = loop.stop().then(() => {
      isStopped = true;
    });
    for (const number of [1, 3]) ends[number]?.resolve();
    await pause(100);
    expect(isStopped).toBe(false);
    ends[4]?.resolve();
    await stopping;
    const open = await rows(database.db, sql`select 1 from push_jobs.job where state < 'completed'`);
    expect(open).toHaveLength(0);
  });

  it("does not begin a job before its time", async () => {
    const started = performance.now();
    let waited = 0;
    await database.db.transaction((tx) =>
      jobs.enqueue(tx, "work", [{ data: { number: 1 }, startAfterSeconds: 2 }]),
    );
    work("work", async (job) => {
      waited = performance.now() - started;
      await complete("work", job);
    });
    await expect.poll(() => waited).toBeGreaterThan(0);
    expect(waited).toBeGreaterThan(1_500);
  });

  it("tries a job again that failed, and moves it to the dead letters after the last try", async () => {
    const tries: number[] = [];
    const dead: number[] = [];
    await enqueue(7);
    work("work", async (job) => {
      tries.push(job.retryCount);
      throw new Error("always");
    });
    work("dead", async (job) => {
      dead.push(job.data.number);
      await complete("dead", job);
    });
    await expect.poll(() => dead).toEqual([7]);
    expect(tries).toEqual([0, 1]);
  });

  it("undoes the work of a worker whose job was given to another", async () => {
    await enqueue(1);
    const outcome = Promise.withResolvers<unknown>();
    work("work", async (job) => {
      await complete("work", job);
      // Once more, as a worker would that slept through its lease.
      const again = database.db.transaction(async (tx) => {
        await tx.execute(sql`insert into push.test_runs values (1, gen_random_uuid(), now())`);
        await jobs.complete(tx, "work", job);
      });
      outcome.resolve(await again.catch((error: unknown) => error));
    });
    expect(await outcome.promise).toBeInstanceOf(JobLostError);
    expect(await rows(database.db, sql`select 1 from push.test_runs`)).toHaveLength(0);
  });

  it("gives the job of a worker that died to another within 20 seconds", async () => {
    await enqueue(1);
    const dying = createJobs({ database, tables, logger });
    await dying.start();
    const taken = Promise.withResolvers<void>();
    // It never ends the job, and its heart stops with the clock that is taken from it.
    const beat = globalThis.setInterval;
    globalThis.setInterval = Object.assign(() => beat(() => undefined, 60_000), beat);
    const release = Promise.withResolvers<void>();
    const dead = dying.work<Work>({
      queue: "work",
      idleMs: 20,
      handle: async () => {
        taken.resolve();
        await release.promise;
      },
    });
    await taken.promise;
    globalThis.setInterval = beat;
    const started = stopwatch();
    const done = Promise.withResolvers<number>();
    work("work", async (job) => {
      await complete("work", job);
      done.resolve(job.retryCount);
    });
    expect(await done.promise).toBe(1);
    expect(started()).toBeLessThan(20_000);
    release.resolve();
    await dead.stop();
    await dying.stop();
    // Watching over the jobs must work with the rights of the ordinary user.
    expect(warnings).not.toContain("The job queue");
  });
});

describe.each(backends)("a process that starts on %s", (backend) => {
  it("removes the jobs that were finished more than an hour ago, and no others", async () => {
    const holder = await createServiceDatabase(backend, {
      ...pushMigrations,
      librarySchemas: [jobSchema(tables)],
    });
    const database = await holder.open();
    await database.migrate();
    const jobs = createJobs({ database, tables, logger });
    await jobs.start();
    const work = [1, 2, 3].map((number) => ({ data: { number } }));
    await database.db.transaction((tx) => jobs.enqueue(tx, "work", work));
    await jobs.stop();
    const finished = (number: number, secondsAgo: number) =>
      database.db.execute(sql`
        update push_jobs.job set state = 'completed', completed_on = now() - make_interval(secs => ${secondsAgo}::int)
        where data ->> 'number' = ${String(number)}`);
    await finished(1, 3_630);
    await finished(2, 3_500);
    // Somebody has removed jobs a minute ago, as each process does.
    await database.db.execute(sql`update push_jobs.queue set maintain_on = now() - interval '61 seconds'`);
    const next = createJobs({ database, tables, logger });
    await next.start();
    const left = async () =>
      (
        await rows<{ number: string }>(
          database.db,
          sql`select data ->> 'number' as number from push_jobs.job`,
        )
      )
        .map(({ number }) => number)
        .toSorted();
    await expect.poll(left).toEqual(["2", "3"]);
    await next.stop();
    await holder.drop();
  });

  it("gives back the jobs of workers that died before, at once: it may not live long itself", async () => {
    const holder = await createServiceDatabase(backend, {
      ...pushMigrations,
      librarySchemas: [jobSchema(tables)],
    });
    const database = await holder.open();
    await database.migrate();
    const dead = createJobs({ database, tables, logger });
    await dead.start();
    await database.db.transaction((tx) => dead.enqueue(tx, "work", [{ data: { number: 1 } }]));
    await dead.stop();
    // Taken a minute ago, by a worker that has given no sign of life since. Nobody has looked meanwhile.
    await database.db.execute(sql`
      update push_jobs.job set state = 'active', started_on = now() - interval '1 minute',
        heartbeat_on = now() - interval '1 minute'`);
    await database.db.execute(sql`update push_jobs.queue set monitor_claim_on = now() - interval '1 minute'`);
    const state = async () =>
      (await rows<{ state: string }>(database.db, sql`select state::text from push_jobs.job`))[0]?.state;
    expect(await state()).toBe("active");
    const jobs = createJobs({ database, tables, logger });
    await jobs.start();
    const waited = stopwatch();
    await expect.poll(state).toBe("retry");
    // Before the first interval, which is five seconds.
    expect(waited()).toBeLessThan(3_000);
    await jobs.stop();
    await holder.drop();
  });
});
