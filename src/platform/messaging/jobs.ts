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
import { unavailable } from "../base/errors.ts";
import { type Loop, pause, startLoop } from "../base/loop.ts";
import { currentSpan, type TraceContext, traceHeaders } from "../base/tracing.ts";
import type { Database, ScriptedDatabase } from "../database/database.ts";
import type { LibrarySchema } from "../database/migrations/migrations.ts";
import { text } from "../database/sql/readers.ts";
import { computed, rawRows, rows, selection } from "../database/sql/statements.ts";
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
  /** The priority with which it was enqueued. Jobs that continue its work should have the same one. */
  readonly priority: number;
  /** The id that a job of a dead-letter queue had before it failed for good; null in other queues. */
  readonly failedId: string | null;
}

/** A job to be enqueued. */
interface NewJob extends JobTiming {
  /** A UUID, so that a row can name its job; a random one unless given. */
  readonly id?: string;
  readonly data: object;
}

/** When a job is due, and its order among those that are. */
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
  /**
   * The most jobs that the worker does at once; 1 unless given. It does more than one only if `handle` calls `next`.
   */
  readonly atOnce?: number;
  /** Jobs of this priority or a lower one, of which it does fewer at once, so that the others find a place. */
  readonly lowPriority?: { readonly priority: number; readonly atOnce: number };
  /** Pause after the queue was empty. */
  readonly idleMs?: number;
}

export interface Jobs {
  /** Adds jobs, in the transaction. */
  enqueue(tx: Database, queue: string, jobs: readonly NewJob[]): Promise<void>;
  /**
   * Has the workers of this process look for jobs of the queue at once. To be called after the transaction that
   * enqueued the jobs was committed.
   */
  wake(queue: string): void;
  /**
   * Makes waiting jobs of the queue due now, in the transaction: those whose data contains all of `data`.
   */
  makeDue(tx: Database, queue: string, data: Readonly<Record<string, string>>): Promise<void>;
  /**
   * Completes a job, in the transaction of its changes.
   * @throws JobLostError if another worker has the job now, which rolls the transaction back
   */
  complete(tx: Database, queue: string, job: Job<unknown>): Promise<void>;
  /** Does jobs of a queue until stopped, one at a time unless their handler lets the next one begin. */
  work<Data extends object>(options: WorkOptions<Data>): Loop;
  /**
   * Loads the queues, and begins to look for jobs whose workers died. Until it has resolved, `enqueue` throws that the
   * database is unavailable. Call once, outside any transaction.
   */
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
  const wakeUps = new Map<string, Set<WakeUp>>();
  let isStarted = false;
  return {
    async enqueue(tx, queue, jobs) {
      if (!isStarted) throw unavailable("The database", new Error("the job queues are not ready yet"));
      if (jobs.length === 0) return;
      const inserts = jobs.map(({ id, data, startAfterSeconds, priority }) => ({
        ...(id !== undefined && { id }),
        data: withTrace(data),
        ...(startAfterSeconds !== undefined && { startAfter: startAfterSeconds }),
        ...(priority !== undefined && { priority }),
      }));
      await boss.insert(queue, inserts, { db: statementsIn(tx) });
    },
    async makeDue(tx, queue, data) {
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
      for (const wakeUp of wakeUps.get(queue) ?? []) wakeUp.signal();
    },
    work(options) {
      const wakeUp = new WakeUp();
      const ofQueue = wakeUps.get(options.queue) ?? new Set();
      wakeUps.set(options.queue, ofQueue.add(wakeUp));
      const worker = startWorker(boss, options, wakeUp, logger);
      return {
        async stop() {
          ofQueue.delete(wakeUp);
          await worker.stop();
        },
      };
    },
    async start() {
      await boss.start();
      // pg-boss loads a queue at its first use. Inside a transaction on the embedded database's only connection,
      // that would be a deadlock.
      await Promise.all(tables.queues.map(({ name }) => boss.insert(name, [])));
      isStarted = true;
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

/** A column of pg-boss's own tables, some of which have names of columns of ours. */
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
  return { ...data, ...traceHeaders(currentSpan()?.context ?? {}) };
}

function traceOf(data: {
  readonly traceparent?: unknown;
  readonly tracestate?: unknown;
}): TraceContext | undefined {
  const { traceparent, tracestate } = data;
  if (typeof traceparent !== "string") return undefined;
  return { traceparent, ...(typeof tracestate === "string" && { tracestate }) };
}

/** A signal that ends a worker's pause. */
class WakeUp {
  #signalled = new AbortController();

  signal(): void {
    this.#signalled.abort();
  }

  /** Forgets earlier signals. To be called before the worker looks for a job. */
  reset(): void {
    if (this.#signalled.signal.aborted) this.#signalled = new AbortController();
  }

  /** Waits until there was a signal since the last reset, the time is over, or the process stops. */
  async wait(milliseconds: number, stopping: AbortSignal): Promise<void> {
    const ended = AbortSignal.any([this.#signalled.signal, stopping]);
    if (!ended.aborted) await pause(milliseconds, ended);
  }
}

function startWorker<Data extends object>(
  boss: PgBoss,
  { queue, handle, atOnce = 1, lowPriority, idleMs = 500 }: WorkOptions<Data>,
  wakeUp: WakeUp,
  logger: Logger,
): Loop {
  /** The jobs that are being done; the promises resolve at their ends. */
  const open = new Map<Job<Data>, Promise<void>>();
  const heartbeat = setInterval(() => {
    // Each in a statement of its own: one whose row its handler has locked must not keep the others waiting.
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
    // The embedded database responds at once, so short jobs in a row would keep all timers and sockets waiting.
    await setImmediate();
  }

  /** The least priority of a job that there is a place for now; undefined: any priority. */
  function leastPriority(): number | undefined {
    if (lowPriority === undefined) return undefined;
    const places = [...open.keys()].filter(({ priority }) => priority <= lowPriority.priority);
    return places.length < lowPriority.atOnce ? undefined : lowPriority.priority + 1;
  }

  const loop = startLoop(async (stopping) => {
    try {
      wakeUp.reset();
      const minPriority = leastPriority();
      const [job] = await boss.fetch<Data>(queue, {
        batchSize: 1,
        includeMetadata: true,
        ...(minPriority !== undefined && { minPriority }),
      });
      if (job) await begin({ ...job, queue: job.name, failedId: job.sourceId }, stopping);
      else await wakeUp.wait(idleMs, stopping);
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
