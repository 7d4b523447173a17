/**
 * Durable jobs, by pg-boss: a job is enqueued in the transaction of the rows that it belongs to, and any process
 * does it afterwards. Owns the job tables (a PostgreSQL schema of their own), the queues, and the workers, which
 * fetch jobs one by one. The owner of a queue defines what its jobs do.
 *
 * One worker at a time has a job. The worker completes it in the transaction of its changes, so that both are
 * atomic. A worker that dies sends no more heartbeats, and after {@link heartbeatSeconds} another worker gets the
 * job: work may be done twice, but is never lost.
 */
import { setImmediate } from "node:timers/promises";
import { SQL, sql } from "drizzle-orm";
import { fromDrizzle, PgBoss } from "pg-boss";
import type { Logger } from "pino";
import { type Loop, pause, startLoop } from "../base/loop.ts";
import { currentSpan } from "../base/tracing.ts";
import type { Database, ScriptedDatabase } from "../database/database.ts";
import type { LibrarySchema } from "../database/migrations.ts";
import { text } from "../database/readers.ts";
import { computed, rawRows, rows, selection } from "../database/statements.ts";
import { inJobSpan } from "./event-spans.ts";

/** A queue, and how its failed jobs are retried. */
interface Queue {
  readonly name: string;
  /** Retries of a job that failed, or whose worker died. */
  readonly retryLimit: number;
  /** The queue that a job moves to after its last retry; declared before this one. */
  readonly deadLetter?: string;
}

/** A service's job tables, and its queues. */
export interface JobTables {
  /** The PostgreSQL schema; pg-boss owns all of it. */
  readonly schema: string;
  readonly queues: readonly Queue[];
}

/** A job that a worker has fetched. */
export interface Job<Data> {
  readonly id: string;
  /** The queue that it was fetched from. */
  readonly queue: string;
  readonly data: Data;
  /** 0 at the first attempt. */
  readonly retryCount: number;
  /** As it was enqueued. Jobs that continue the work should have the same priority. */
  readonly priority: number;
  /** In a dead-letter queue: the id that the job had before it failed for good. */
  readonly failedId: string | null;
}

/** A job to be enqueued. */
interface NewJob extends JobTiming {
  /** A UUID, so that a row can name its job; made up unless given. */
  readonly id?: string;
  readonly data: object;
}

/** When a job is done, and before which others. */
interface JobTiming {
  /** Seconds from now, by the database's clock; at once unless given. */
  readonly startAfterSeconds?: number;
  /** Jobs of higher priority come first; 0 unless given. */
  readonly priority?: number;
}

interface WorkOptions<Data> {
  readonly queue: string;
  /**
   * Does the job and ends it by `complete` in its own transaction. If it throws, or does not complete the job,
   * the job is retried later. `stopping` is aborted when the process is about to end: the handler should then
   * return soon. `next` lets the worker fetch the next job before this one has ended.
   */
  readonly handle: (job: Job<Data>, stopping: AbortSignal, next: () => void) => Promise<void>;
  /** Jobs that the worker does at once, at most; 1 unless given. More than one only if `handle` calls `next`. */
  readonly atOnce?: number;
  /** Jobs of this priority or a lower one, of which it does fewer at once, so that the others find a place. */
  readonly last?: { readonly priority: number; readonly atOnce: number };
  /** Pause after the queue was empty. */
  readonly idleMs?: number;
}

export interface Jobs {
  /** Adds jobs, in the transaction. */
  enqueue(tx: Database, queue: string, jobs: readonly NewJob[]): Promise<void>;
  /**
   * Has this process look for jobs of the queue at once, and not only when it would next: to be called after the
   * transaction that enqueued them was committed.
   */
  wake(queue: string): void;
  /**
   * Makes jobs due now that would be due later, in the transaction: those of the queue that wait, and whose data
   * contains all of `data`.
   */
  hasten(tx: Database, queue: string, data: Readonly<Record<string, string>>): Promise<void>;
  /**
   * Completes a job, in the transaction of its changes.
   * @throws JobLostError if another worker has the job now, which rolls the transaction back
   */
  complete(tx: Database, queue: string, job: Job<unknown>): Promise<void>;
  /** Does jobs of a queue, one at a time unless their handler lets the next one begin, until stopped. */
  work<Data extends object>(options: WorkOptions<Data>): Loop;
  /** Loads the queues and begins to supervise jobs, for workers that died. Call once, outside any transaction. */
  start(): Promise<void>;
  stop(): Promise<void>;
}

/** Another worker has the job now. */
export class JobLostError extends Error {
  override readonly name = "JobLostError";
}

/** Seconds without a heartbeat after which another worker may fetch a job. */
const heartbeatSeconds = 10;
const heartbeatIntervalMs = 3_000;
/** Seconds between checks for such jobs. */
const superviseSeconds = 5;
/** Seconds that a job may take in all, heartbeats or not. */
const expireSeconds = 3_600;
/** Seconds that a finished job is kept, for inspection. */
const retentionSeconds = 3_600;
/** Seconds between removals of finished jobs; by default it would be a day. */
const maintenanceSeconds = 60;

export function createJobs({
  database,
  tables,
  logger,
}: {
  readonly database: ScriptedDatabase;
  readonly tables: JobTables;
  readonly logger: Logger;
}): Jobs {
  const boss = new PgBoss({
    db: statementsOf(database),
    schema: tables.schema,
    // start() rejects where the tables have another version of pg-boss's schema, an older or a newer one.
    migrate: false,
    createSchema: false,
    schedule: false,
    reindex: false,
    monitorVacuum: false,
    superviseIntervalSeconds: superviseSeconds,
    monitorIntervalSeconds: superviseSeconds,
    maintenanceIntervalSeconds: maintenanceSeconds,
    // Supervision runs far more often than by default; a low limit would warn of normal queues.
    warningQueueSize: 1_000_000,
  });
  boss.on("error", (err) => logger.warn({ err }, "The job queue had an error and continues"));
  boss.on("warning", (warning) => logger.warn({ warning }, "The job queue reported a warning"));
  const alarms = new Map<string, Set<Alarm>>();
  return {
    async enqueue(tx, queue, jobs) {
      if (jobs.length === 0) return;
      const inserts = jobs.map(({ id, data, startAfterSeconds, priority }) => ({
        ...(id !== undefined && { id }),
        data: withTrace(data),
        ...(startAfterSeconds !== undefined && { startAfter: startAfterSeconds }),
        ...(priority !== undefined && { priority }),
      }));
      await boss.insert(queue, inserts, { db: statementsIn(tx) });
    },
    async hasten(tx, queue, data) {
      await tx.execute(sql`
        update ${sql.identifier(tables.schema)}.job set start_after = now()
        where name = ${queue} and ${column("state")} = 'created' and start_after > now()
          and ${column("data")} @> ${JSON.stringify(data)}::jsonb`);
    },
    async complete(tx, queue, { id, retryCount }) {
      const ended = await boss.complete(queue, { id, retryCount }, null, { db: statementsIn(tx) });
      // pg-boss returns the number of jobs that it completed, but its types do not have it.
      if (!("affected" in ended) || ended.affected !== 1)
        throw new JobLostError(`another worker has job ${id} of ${queue} now`);
    },
    wake(queue) {
      for (const alarm of alarms.get(queue) ?? []) alarm.ring();
    },
    work(options) {
      const alarm = new Alarm();
      const ofQueue = alarms.get(options.queue) ?? new Set();
      alarms.set(options.queue, ofQueue.add(alarm));
      const worker = startWorker(boss, options, alarm, logger);
      return {
        async stop() {
          ofQueue.delete(alarm);
          await worker.stop();
        },
      };
    },
    async start() {
      await boss.start();
      // pg-boss loads a queue at its first use. Inside a transaction on the embedded database's only connection,
      // that would be a deadlock.
      await Promise.all(tables.queues.map(({ name }) => boss.insert(name, [])));
      // pg-boss supervises only after an interval. Jobs of a process that always dies earlier would never be retried.
      void boss.supervise().catch((err: unknown) => {
        logger.warn({ err }, "The check for jobs of dead workers failed and will be retried");
      });
    },
    async stop() {
      await boss.stop({ graceful: false });
    },
  };
}

/** A column of pg-boss's own tables, some of which are called like columns of ours. */
const column = (name: string) => sql.identifier(name);

/** Runs pg-boss's SQL: a text without parameters can be several statements, with a transaction of its own. */
function statementsOf({ db, script }: ScriptedDatabase) {
  const single = statementsIn(db);
  return {
    executeSql: async (text: string, values?: unknown[]) =>
      values && values.length > 0 ? single.executeSql(text, values) : { rows: await script(text) },
  };
}

/** Runs pg-boss's SQL as a part of our transaction. */
function statementsIn(tx: Database) {
  const execute = async (statement: unknown) => {
    if (!(statement instanceof SQL)) throw new TypeError("the adapter did not return SQL");
    return { rows: await rawRows(tx, statement) };
  };
  const { executeSql } = fromDrizzle({ execute }, sql);
  return { executeSql: (text: string, values?: unknown[]) => executeSql(text, values?.map(asParameter)) };
}

/** postgres.js does not turn objects into JSON. */
function asParameter(value: unknown): unknown {
  const isRecord =
    typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;
  return isRecord ? JSON.stringify(value) : value;
}

/** The data of a job, with the span in which it is enqueued; it may be continued in another process. */
function withTrace(data: object): object {
  const traceparent = currentSpan()?.context.traceparent;
  return traceparent === undefined ? data : { ...data, traceparent };
}

function traceOf(data: object): string | undefined {
  return "traceparent" in data && typeof data.traceparent === "string" ? data.traceparent : undefined;
}

/** Ends a worker's pause. */
class Alarm {
  #ringing = new AbortController();

  ring(): void {
    this.#ringing.abort();
  }

  /** Nothing has rung: to be called before the worker looks for a job. */
  reset(): void {
    if (this.#ringing.signal.aborted) this.#ringing = new AbortController();
  }

  /** Waits until it has rung since the last reset, the time is over, or the process stops. */
  async wait(milliseconds: number, stopping: AbortSignal): Promise<void> {
    const ended = AbortSignal.any([this.#ringing.signal, stopping]);
    if (!ended.aborted) await pause(milliseconds, ended);
  }
}

function startWorker<Data extends object>(
  boss: PgBoss,
  { queue, handle, atOnce = 1, last, idleMs = 500 }: WorkOptions<Data>,
  alarm: Alarm,
  logger: Logger,
): Loop {
  /** The jobs that are being done; the promises resolve at their ends. */
  const open = new Map<Job<Data>, Promise<void>>();
  const heartbeat = setInterval(() => {
    // Each by itself: one whose row is locked, as its handler stores what it did, must not keep the others waiting.
    for (const job of open.keys()) boss.touch(queue, job).catch(() => undefined);
  }, heartbeatIntervalMs).unref();

  async function workOn(job: Job<Data>, stopping: AbortSignal, next: () => void): Promise<void> {
    try {
      await inJobSpan(queue, job.id, traceOf(job.data), () => handle(job, stopping, next));
    } catch (err) {
      if (err instanceof JobLostError) {
        logger.warn({ queue, jobId: job.id }, "A job was taken over by another worker");
        return;
      }
      logger.error(
        { err, queue, jobId: job.id, retryCount: job.retryCount },
        "A job failed and will be retried",
      );
      // If this fails too, the job is retried when its heartbeats are missed.
      await boss
        .fail(queue, { id: job.id, retryCount: job.retryCount }, { message: errorName(err) })
        .catch(() => undefined);
    }
  }

  /** Begins a job. Resolves when the next one may be fetched. */
  async function begin(job: Job<Data>, stopping: AbortSignal): Promise<void> {
    const { promise, resolve: next } = Promise.withResolvers<void>();
    const done = workOn(job, stopping, next).then(() => {
      open.delete(job);
      next();
    });
    open.set(job, done);
    await promise;
    while (open.size >= atOnce) await Promise.race(open.values());
    // The embedded database answers at once: job after job that is soon done would let no timer and no socket have a turn.
    await setImmediate();
  }

  /** The least priority of a job that has a place now; undefined: any has. */
  function leastPriority(): number | undefined {
    if (last === undefined) return undefined;
    const places = [...open.keys()].filter(({ priority }) => priority <= last.priority);
    return places.length < last.atOnce ? undefined : last.priority + 1;
  }

  const loop = startLoop(async (stopping) => {
    try {
      alarm.reset();
      const minPriority = leastPriority();
      const [job] = await boss.fetch<Data>(queue, {
        ...{ batchSize: 1, includeMetadata: true },
        ...(minPriority !== undefined && { minPriority }),
      });
      if (job) await begin({ ...job, queue: job.name, failedId: job.sourceId }, stopping);
      else await alarm.wait(idleMs, stopping);
      return 0;
    } catch (err) {
      logger.warn({ err, queue }, "No job could be fetched; the fetch will be retried");
      return idleMs;
    }
  });
  return {
    async stop() {
      await loop.stop();
      await Promise.all(open.values());
      clearInterval(heartbeat);
    },
  };
}

/** The name of an error, the only part that the job table may keep: a message may contain private data. */
function errorName(thrown: unknown): string {
  return thrown instanceof Error ? thrown.name : "unknown";
}

/** The job tables and queues, for a service's migrations. */
export function jobSchema(tables: JobTables): LibrarySchema {
  return {
    schema: tables.schema,
    migrate: (owner) => migrateJobs(owner, tables),
    isMigrated: (db) => hasQueues(db, tables),
  };
}

async function migrateJobs(owner: ScriptedDatabase, { schema, queues }: JobTables): Promise<void> {
  const boss = new PgBoss({ db: statementsOf(owner), schema, supervise: false, schedule: false });
  // Errors that it emits are thrown as well.
  boss.on("error", () => undefined);
  await boss.start();
  try {
    for (const { name, retryLimit, deadLetter } of queues) {
      const options = {
        retryLimit,
        retryDelay: 1,
        retryBackoff: true,
        retryDelayMax: 60,
        expireInSeconds: expireSeconds,
        heartbeatSeconds: heartbeatSeconds,
        deleteAfterSeconds: retentionSeconds,
        ...(deadLetter !== undefined && { deadLetter }),
      };
      if (await boss.getQueue(name)) await boss.updateQueue(name, options);
      else await boss.createQueue(name, options);
    }
  } finally {
    await boss.stop({ graceful: false });
  }
}

async function hasQueues(db: Database, { schema, queues }: JobTables): Promise<boolean> {
  const known = selection({ name: computed(text, sql`name`) });
  const found = await rows(db, known, sql`select ${known} from ${sql.identifier(schema)}.queue`);
  return queues.every((queue) => found.some(({ name }) => name === queue.name));
}
