/**
 * Durable jobs, by pg-boss: work that is promised in the transaction of the rows it belongs to, and done
 * afterwards by any process. Owns the job tables (a PostgreSQL schema of their own), the queues, and the loop
 * that takes jobs one by one. What a job means is its queue's owner's business.
 *
 * A job is taken by one worker at a time. Its worker ends it in the transaction of what it did, so that work
 * and ending are one. A worker that dies stops giving signs of life, and after {@link aliveSeconds} the job
 * is another's: work may be done twice, never lost.
 */
import { SQL, sql } from "drizzle-orm";
import { fromDrizzle, PgBoss } from "pg-boss";
import type { Logger } from "pino";
import { type Loop, startLoop } from "../base/loop.ts";
import type { Database, ScriptedDatabase } from "../database/database.ts";
import type { LibrarySchema } from "../database/migrations.ts";
import { text } from "../database/readers.ts";
import { computed, rawRows, rows, selection } from "../database/statements.ts";

/** A queue, and what becomes of its jobs when they fail. */
interface Queue {
  readonly name: string;
  /** How often a job that failed, or whose worker died, is tried again. */
  readonly retryLimit: number;
  /** The queue that a job moves to after its last try; declared before this one. */
  readonly deadLetter?: string;
}

/** A service's job tables, and its queues. */
export interface JobTables {
  /** The PostgreSQL schema; pg-boss owns all of it. */
  readonly schema: string;
  readonly queues: readonly Queue[];
}

/** A job in the hands of a worker. */
export interface Job<Data> {
  readonly id: string;
  readonly data: Data;
  /** 0 the first time. */
  readonly retryCount: number;
  /** As it was enqueued: what goes on with the work later should be as urgent. */
  readonly priority: number;
}

/** When and before which others a job is to be done. */
interface JobTiming {
  /** Seconds from now, by the database's clock; at once unless given. */
  readonly startAfterSeconds?: number;
  /** The greater, the earlier; 0 unless given. */
  readonly priority?: number;
}

interface WorkOptions<Data> {
  readonly queue: string;
  /**
   * Does the job and ends it by `complete` in its own transaction. A job that it throws for, or leaves open,
   * is tried again later. `stopping` is aborted when the process is to end: then it leaves off soon.
   */
  readonly handle: (job: Job<Data>, stopping: AbortSignal) => Promise<void>;
  /** Pause when there was nothing to do. */
  readonly idleMs?: number;
}

export interface Jobs {
  /** Promises work, in the transaction. */
  enqueue(
    tx: Database,
    queue: string,
    jobs: readonly ({ readonly data: object } & JobTiming)[],
  ): Promise<void>;
  /**
   * Ends a job, in the transaction of what it did.
   * @throws JobLostError if it is no longer this worker's, which undoes the transaction
   */
  complete(tx: Database, queue: string, job: Job<unknown>): Promise<void>;
  /** Takes jobs of a queue, one at a time, until stopped. */
  work<Data extends object>(options: WorkOptions<Data>): Loop;
  /** Looks the queues up and begins to watch over jobs whose workers died. Call once, outside any transaction. */
  start(): Promise<void>;
  stop(): Promise<void>;
}

/** The job was given to another worker meanwhile. */
export class JobLostError extends Error {
  override readonly name = "JobLostError";
}

/** Seconds after which a job whose worker gives no sign of life is another's. */
const aliveSeconds = 10;
const signOfLifeMs = 3_000;
/** Seconds between looks at such jobs. */
const watchSeconds = 5;
/** Seconds that a job may take in all, alive or not. */
const longestJobSeconds = 3_600;
/** Seconds that a finished job is kept, to look into. */
const keptSeconds = 3_600;

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
    migrate: false,
    createSchema: false,
    schedule: false,
    reindex: false,
    monitorVacuum: false,
    superviseIntervalSeconds: watchSeconds,
    monitorIntervalSeconds: watchSeconds,
    // Work is looked for far more often than the default of these, so say so only where something is wrong.
    warningQueueSize: 1_000_000,
  });
  boss.on("error", (err) => logger.warn({ err }, "the job queue had an error; it goes on"));
  boss.on("warning", (warning) => logger.warn({ warning }, "the job queue warns"));
  return {
    async enqueue(tx, queue, jobs) {
      if (jobs.length === 0) return;
      const inserts = jobs.map(({ data, startAfterSeconds, priority }) => ({
        data,
        ...(startAfterSeconds !== undefined && { startAfter: startAfterSeconds }),
        ...(priority !== undefined && { priority }),
      }));
      await boss.insert(queue, inserts, { db: statementsIn(tx) });
    },
    async complete(tx, queue, { id, retryCount }) {
      const ended = await boss.complete(queue, { id, retryCount }, null, { db: statementsIn(tx) });
      // pg-boss answers how many jobs it ended, and leaves that out of its types.
      if (!("affected" in ended) || ended.affected !== 1)
        throw new JobLostError(`job ${id} of ${queue} is another worker's now`);
    },
    work: (options) => startWorker(boss, options, logger),
    async start() {
      await boss.start();
      // A queue is looked up at its first use: inside a transaction on the embedded database's one connection,
      // that would wait for itself.
      await Promise.all(tables.queues.map(({ name }) => boss.insert(name, [])));
      // pg-boss looks after an interval only: a process that always dies before that would never get its jobs back.
      void boss.supervise().catch((err: unknown) => {
        logger.warn({ err }, "jobs of workers that died could not be looked for; it is tried again");
      });
    },
    async stop() {
      await boss.stop({ graceful: false });
    },
  };
}

/** pg-boss's SQL: what has no parameters can be several statements, in a transaction of its own. */
function statementsOf({ db, script }: ScriptedDatabase) {
  const single = statementsIn(db);
  return {
    executeSql: async (text: string, values?: unknown[]) =>
      values && values.length > 0 ? single.executeSql(text, values) : { rows: await script(text) },
  };
}

/** pg-boss's SQL as a part of our transaction. */
function statementsIn(tx: Database) {
  const execute = async (statement: unknown) => {
    if (!(statement instanceof SQL)) throw new TypeError("the adapter makes something else than SQL");
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

function startWorker<Data extends object>(
  boss: PgBoss,
  { queue, handle, idleMs = 500 }: WorkOptions<Data>,
  logger: Logger,
): Loop {
  async function workOn(job: Job<Data>, stopping: AbortSignal): Promise<void> {
    const signs = setInterval(() => {
      boss.touch(queue, { id: job.id, retryCount: job.retryCount }).catch(() => undefined);
    }, signOfLifeMs);
    try {
      await handle(job, stopping);
    } catch (err) {
      if (err instanceof JobLostError) {
        logger.warn({ queue, job: job.id }, "a job was taken over by another worker");
        return;
      }
      logger.error(
        { err, queue, job: job.id, retryCount: job.retryCount },
        "a job failed; it is tried again",
      );
      await boss.fail(queue, { id: job.id, retryCount: job.retryCount }, { message: nameOf(err) });
    } finally {
      clearInterval(signs);
    }
  }

  return startLoop(async (stopping) => {
    try {
      const [job] = await boss.fetch<Data>(queue, { batchSize: 1, includeMetadata: true });
      if (!job) return idleMs;
      await workOn(job, stopping);
      return 0;
    } catch (err) {
      logger.warn({ err, queue }, "no job could be fetched; it is tried again");
      return idleMs;
    }
  });
}

/** What the job table may keep of an error: its name, as messages can carry anything. */
function nameOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.name : "unknown";
}

/** The job tables and queues, as a service's migrations take them. */
export function jobSchema(tables: JobTables): LibrarySchema {
  return {
    schema: tables.schema,
    migrate: (owner) => migrateJobs(owner, tables),
    isMigrated: (db) => hasQueues(db, tables),
  };
}

async function migrateJobs(owner: ScriptedDatabase, { schema, queues }: JobTables): Promise<void> {
  const boss = new PgBoss({ db: statementsOf(owner), schema, supervise: false, schedule: false });
  // What it emits besides is thrown as well.
  boss.on("error", () => undefined);
  await boss.start();
  try {
    for (const { name, retryLimit, deadLetter } of queues) {
      const options = {
        retryLimit,
        retryDelay: 1,
        retryBackoff: true,
        retryDelayMax: 60,
        expireInSeconds: longestJobSeconds,
        heartbeatSeconds: aliveSeconds,
        deleteAfterSeconds: keptSeconds,
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
