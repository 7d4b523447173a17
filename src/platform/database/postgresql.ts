/**
 * PostgreSQL, by a pool of connections that is divided into two lanes. Statements of the first only read, and wait
 * for nobody's locks; they follow each other closely on a few connections. Everything else has a connection to itself
 * while it runs.
 */
import { setTimeout } from "node:timers/promises";
import { sql } from "drizzle-orm";
import { drizzle, type PostgresJsDatabase } from "drizzle-orm/postgres-js";
import type { Logger } from "pino";
import postgres from "postgres";
import { BoundedWork } from "../base/bounded-work.ts";
import { sqlState } from "../base/database-errors.ts";
import type { DatabaseObserver } from "../base/observers.ts";
import { Turns } from "../base/turns.ts";
import { checkForClient, keepalives } from "./abandoned-sessions.ts";
import { checkTimeoutMs, clientOptions, connectTimeoutMs, type SessionParameters } from "./client-options.ts";
import { createConfirm } from "./confirm.ts";
import type { ConnectionOptions, Parameters, QueryOptions, Result } from "./connection.ts";
import { Connector } from "./connector.ts";
import { isReachable, type OpenDatabase } from "./database.ts";
import { type Hosts, oneHost } from "./hosts.ts";
import { Lane, noConnection } from "./lane.ts";
import { whoHoldsAdvisoryLock, whoHoldsLocks } from "./lock-holders.ts";
import { isMigrated, MigrationBlockedError, type Migrations } from "./migrations.ts";
import { openHosts } from "./open-hosts.ts";
import { requireOrdinaryUser } from "./privileges.ts";
import { boolean } from "./readers.ts";
import { runMigrations } from "./run-migrations.ts";
import { checkSession } from "./session.ts";
import type { Address, DatabaseSettings } from "./settings.ts";
import { inStatementSpan, inTransactionSpan } from "./statement-spans.ts";
import { computed, rows, selection } from "./statements.ts";
import {
  defaultLimits,
  type Query,
  runScript,
  runTransaction,
  type TransactionLimits,
} from "./transaction.ts";

type PostgresSettings = Extract<DatabaseSettings, { kind: "postgres" }>;

/** Any fixed number. A migrating process holds it as an advisory lock. */
const migrationLock = 7_214_033;
/** Milliseconds between two attempts to get it, and between two looks at who has it: that takes all locks there are. */
const migrationLockRetryMs = 100;
const migrationHolderMs = 5_000;
/**
 * Milliseconds that a statement of a migration waits for a lock. Whoever comes after it waits behind it, also where
 * the lock that it waits for would not be in their way, so it has to give up before they do.
 */
const migrationLockTimeoutMs = 1_000;

/** Milliseconds: what the server is told, and when the client gives up, as the server may not be able to say so. */
const readTimeouts = { statement: 1_250, client: 1_500, wait: 1_500 };
/**
 * The wait for a connection is shorter than any caller waits for its response, so that nothing is written for a
 * caller that has already received an error.
 */
const writeTimeouts = { statement: 5_000, client: 6_000, wait: 4_000 };
/** At a standby: the primary can be asked instead. */
const standbyTimeouts = { statement: 300, client: 400, wait: 100 };
/** Of a lease: one that is kept later has run out. */
const leaseTimeouts = { statement: 2_000, client: 3_000, wait: 3_000 };
/** Connections to each standby. */
const standbySize = 2;
/**
 * Milliseconds that a single statement waits for a lock while it has one of the connections that all share. Then it
 * is run again as a transaction, of which there are only so many, and one for each statement. A transaction waits as long
 * for each lock at first, and is then rolled back and run again as one of those that are known to wait.
 */
const lockTimeoutMs = 50;

const impatientLimits: TransactionLimits = { ...defaultLimits, lock: lockTimeoutMs };

/** Statements that follow each other on one connection for reading. */
const readsSharing = 32;

/** How the connections of a pool are divided. @param poolSize at least 2 */
export function divide(poolSize: number): { reads: number; writes: number; transactions: number } {
  const reads = Math.max(1, Math.floor(poolSize / 4));
  const writes = poolSize - reads;
  return { reads, writes, transactions: Math.max(1, Math.floor(writes / 2)) };
}

function sessionOf(timeouts: typeof readTimeouts, session: SessionParameters): SessionParameters {
  // Our statements are short. If the planner overestimates their cost, JIT compilation takes longer than they do.
  return { statement_timeout: timeouts.statement, jit: "off", ...session };
}

/** Opens the database as the ordinary user. Connections are made when they are needed. */
export function openPostgresql(
  settings: PostgresSettings,
  migrations: Migrations,
  observer: DatabaseObserver,
  logger?: Logger,
): OpenDatabase {
  const hosts = openHosts(settings, settings.hosts, settings, logger);
  const connectorTo = (where: Hosts) => new Connector(where, () => observer.connectFailed());
  const connector = connectorTo(hosts);
  const size = divide(settings.poolSize);
  // Nothing may be kept in a session that serves somebody else next.
  const isPooled = settings.pooler === "transaction";

  function connection(timeouts: typeof readTimeouts, session: SessionParameters) {
    return (address: Address): ConnectionOptions => ({
      address,
      client: clientOptions(settings, address, settings, isPooled ? {} : sessionOf(timeouts, session)),
      prepare: !isPooled,
      timeoutMs: timeouts.client,
      connectTimeoutMs,
      checkTimeoutMs,
      async check(query) {
        await checkSession(query, isPooled);
        return hosts.check(query);
      },
      isDoubtful: (error) => hosts.isDoubtful(error),
    });
  }

  const reads = new Lane({
    name: "reads",
    connection: connection(readTimeouts, { default_transaction_read_only: "on" }),
    size: size.reads,
    sharing: readsSharing,
    maxTransactions: 0,
    waitMs: readTimeouts.wait,
    connector,
    observer,
  });
  const writes = new Lane({
    name: "writes",
    connection: connection(writeTimeouts, { lock_timeout: lockTimeoutMs }),
    size: size.writes,
    sharing: 1,
    maxTransactions: size.transactions,
    waitMs: writeTimeouts.wait,
    connector,
    observer,
  });

  /** In sessions of their own, whatever pooler the primary has. */
  function standbyLane(address: Address): Lane {
    const session = sessionOf(standbyTimeouts, { default_transaction_read_only: "on" });
    return new Lane({
      name: `reads ${address.host}:${address.port}`,
      connection: () => ({
        address,
        client: clientOptions(settings, address, settings, session),
        prepare: true,
        timeoutMs: standbyTimeouts.client,
        connectTimeoutMs,
        checkTimeoutMs,
        // What kind of server it is, each statement says.
        check: responds,
      }),
      size: standbySize,
      sharing: readsSharing,
      maxTransactions: 0,
      waitMs: standbyTimeouts.wait,
      connector: connectorTo(oneHost(address)),
      observer,
    });
  }

  const leases =
    settings.readHosts &&
    new Lane({
      name: "leases",
      connection: connection(leaseTimeouts, {}),
      size: 1,
      sharing: 1,
      maxTransactions: 0,
      waitMs: leaseTimeouts.wait,
      connector: connectorTo(hosts),
      observer,
    });
  const standbys = settings.readHosts?.map((address) => ({ address, lane: standbyLane(address) })) ?? [];

  const patientTransaction = <T>(work: (query: Query) => Promise<T>) =>
    writes.use((one) => runTransaction(one, work), true);

  // Those that are known to wait for a lock leave places to the others.
  const knownToWait = new BoundedWork(Math.max(1, Math.floor(size.transactions / 2)), Infinity, noConnection);
  async function transaction<T>(work: (query: Query) => Promise<T>): Promise<T> {
    const until = performance.now() + writeTimeouts.wait;
    try {
      return await writes.use((one) => runTransaction(one, work, impatientLimits), true);
    } catch (error) {
      // 55P03: it would have had to wait for a lock, and was rolled back.
      if (sqlState(error) !== "55P03") throw error;
      const patience = { maxWaitMs: until - performance.now(), refuse: noConnection };
      return knownToWait.run(() => patientTransaction(work), patience);
    }
  }

  // Those of the same kind mostly wait for the same lock: one of them does, and transactions of other kinds go on.
  const reruns = new Turns(writeTimeouts.wait, noConnection);
  async function write(text: string, options?: QueryOptions): Promise<Result> {
    try {
      return await writes.use((one) => one.query(text, options));
    } catch (error) {
      // 55P03: it would have had to wait for a lock, and has done nothing.
      if (sqlState(error) !== "55P03") throw error;
      return reruns.take(text, () => patientTransaction((query) => query(text, options)));
    }
  }

  const db = drizzleOver(write, transaction);
  return {
    db,
    reads: drizzleOver((text, options) => reads.use((one) => one.query(text, options))),
    standbys: leases && {
      leases: drizzleOver((text, options) => leases.use((one) => one.query(text, options))),
      hosts: standbys.map(({ address, lane }) => ({
        address: `${address.host}:${address.port}`,
        reads: drizzleOver((text, options) => lane.use((one) => one.query(text, options))),
      })),
    },
    confirm: createConfirm(db),
    description: `PostgreSQL at ${settings.hosts.map(({ host, port }) => `${host}:${port}`).join(",")}/${settings.name}`,
    migrate: (tell) => migrateAsOwner(settings, migrations, tell),
    isMigrated: () => isMigrated(db, migrations),
    requireOrdinaryUser: () => requireOrdinaryUser(db, migrations),
    script: (text) => writes.use((one) => runScript(one, text), true),
    isReachable: () =>
      isReachable(async () => {
        await Promise.all([reads.open(), writes.open()]);
        // The others may all be waiting for locks, which is no reason to be unready.
        return reads.isResponsive;
      }),
    close: async () => {
      const lanes = [reads, writes, leases, ...standbys.map(({ lane }) => lane)];
      await Promise.all(lanes.map((lane) => lane?.close()));
    },
  };
}

/** The least that a check asks for. */
async function responds(query: (text: string) => Promise<Result>): Promise<undefined> {
  await query("select 1");
}

/** A statement's rows, once it is known how they are wanted. As the driver's queries, it is run when it is awaited. */
class PendingRows implements PromiseLike<Result> {
  readonly #run: (asLists: boolean) => Promise<Result>;

  constructor(run: (asLists: boolean) => Promise<Result>) {
    this.#run = run;
  }

  /** Each row as a list of values. */
  values(): Promise<Result> {
    return this.#run(true);
  }

  // biome-ignore lint/suspicious/noThenProperty: Drizzle awaits it.
  then<A = Result, B = never>(
    fulfilled?: ((result: Result) => A | PromiseLike<A>) | null,
    rejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#run(false).then(fulfilled, rejected);
  }
}

/** The part of the driver's client that Drizzle uses. */
function clientOver(query: Query) {
  return {
    unsafe: (text: string, parameters: Parameters = []) =>
      new PendingRows((asLists) => inStatementSpan(text, () => query(text, { parameters, asLists }))),
  };
}

/** Drizzle, on a client that never connects: it passes statements and transactions on. */
function drizzleOver(
  query: Query,
  transaction?: <T>(work: (query: Query) => Promise<T>) => Promise<T>,
): PostgresJsDatabase {
  const client = Object.assign(postgres({ max: 1, fetch_types: false }), clientOver(query));
  Object.defineProperty(client, "begin", {
    value: <T>(work: (client: object) => Promise<T>) => {
      if (!transaction) throw new Error("a transaction needs the connections for writing");
      return inTransactionSpan(() => transaction((inside) => work(clientOver(inside))));
    },
  });
  return drizzle({ client });
}

/**
 * On a connection of its own, without a limit on how long a statement takes.
 * @throws MigrationBlockedError if a table is locked by somebody else
 */
async function migrateAsOwner(
  settings: PostgresSettings,
  migrations: Migrations,
  tell?: (message: string) => void,
): Promise<void> {
  const owner = { user: settings.migrationUser, password: settings.migrationPassword };
  const hosts = openHosts(settings, settings.migrationHosts, owner);
  const options = (address: Address): ConnectionOptions => ({
    ...{ address, prepare: false, timeoutMs: Number.POSITIVE_INFINITY, connectTimeoutMs, checkTimeoutMs },
    client: clientOptions(settings, address, owner, { jit: "off", ...keepalives }),
    async check(query) {
      await responds(query);
      return hosts.check(query);
    },
  });
  const connection = await new Connector(hosts, () => undefined).connect(options, () => undefined);
  const db = drizzleOver(
    (text, options) => connection.query(text, options),
    (work) => runTransaction(connection, work, { lock: migrationLockTimeoutMs, idle: 0 }),
  );
  // A library's script may set a longer one.
  const limits = /\bset local lock_timeout = \d+/gi;
  const script = (text: string) =>
    runScript(connection, text.replace(limits, `set local lock_timeout = ${migrationLockTimeoutMs}`));
  const libraries = migrations.librarySchemas ?? [];
  const schemas = [migrations.schema, ...libraries.map(({ schema }) => schema)];
  try {
    await checkForClient(db);
    await becomeTheOnlyOne(db, tell);
    await db.execute(sql.raw(`set lock_timeout = ${migrationLockTimeoutMs}`));
    await runMigrations(db, migrations, tell);
    for (const library of libraries) await library.migrate({ db, script });
    const user = sql.identifier(settings.user);
    await db.execute(sql`grant usage on schema migrations to ${user}`);
    await db.execute(sql`grant select on all tables in schema migrations to ${user}`);
    for (const schema of schemas.map((name) => sql.identifier(name))) {
      await db.execute(sql`grant usage on schema ${schema} to ${user}`);
      await db.execute(
        sql`grant select, insert, update, delete on all tables in schema ${schema} to ${user}`,
      );
      await db.execute(sql`grant usage on all sequences in schema ${schema} to ${user}`);
    }
  } catch (error) {
    if (sqlState(error) !== "55P03") throw error;
    throw new MigrationBlockedError(await whoHoldsLocks(db, ["migrations", ...schemas]), { cause: error });
  } finally {
    await connection.end();
  }
}

/**
 * Waits until no other process migrates, by asking again and again: who builds an index concurrently waits for every
 * statement that has begun before, also for one that waits for a lock of theirs.
 */
async function becomeTheOnlyOne(db: PostgresJsDatabase, tell?: (message: string) => void): Promise<void> {
  const taken = selection({ isTaken: computed(boolean, sql`pg_try_advisory_lock(${migrationLock})`) });
  let lookAt = 0;
  for (;;) {
    const [lock] = await rows(db, taken, sql`select ${taken}`);
    if (lock?.isTaken) return;
    if (tell && performance.now() >= lookAt) {
      const holder = await whoHoldsAdvisoryLock(db, migrationLock);
      if (holder) {
        tell(`Another process migrates: ${holder}. Waiting until it is done.`);
        lookAt = performance.now() + migrationHolderMs;
      }
    }
    await setTimeout(migrationLockRetryMs);
  }
}
