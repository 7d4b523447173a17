/**
 * PostgreSQL, by a pool in two lanes: `reads` for statements that only read and wait for no locks, which follow each
 * other on few connections; `writes` for all others, each with a connection to itself.
 */
import type { Logger } from "pino";
import { sqlState } from "../base/database-errors.ts";
import type { DatabaseObserver } from "../base/observers.ts";
import { Outage } from "../base/outage.ts";
import { Turns } from "../base/turns.ts";
import { WorkQueue } from "../base/work-queue.ts";
import { createConfirm } from "./confirm.ts";
import { clientOptions, ownSession, type SessionParameters } from "./connections/client-options.ts";
import {
  type ConnectionOptions,
  connectionLost,
  type QueryOptions,
  type Result,
} from "./connections/connection.ts";
import { Connector } from "./connections/connector.ts";
import {
  defaultLimits,
  drizzleOver,
  drizzleOverLane,
  type Query,
  runTransaction,
  type TransactionLimits,
} from "./connections/drizzle-over.ts";
import { oneHost } from "./connections/hosts.ts";
import { Lane, type LaneOptions, noTurn } from "./connections/lane.ts";
import { ordinaryLogin } from "./connections/ordinary-login.ts";
import { checkResponds, checkSession } from "./connections/session.ts";
import { isReachable, type OpenDatabase, type OpenOptions } from "./database.ts";
import { openHosts } from "./failover/open-hosts.ts";
import { outagesOf } from "./failure.ts";
import { migrateAsOwner, startAnew } from "./migrations/migrate-postgresql.ts";
import { isMigrated, type Migrations, migrationStates } from "./migrations/migrations.ts";
import { requireOrdinaryUser } from "./migrations/privileges.ts";
import type { Address, PostgresSettings } from "./settings.ts";

/** Milliseconds: the server's limit on a statement, that of the client, and that on the wait for a connection. */
interface Timeouts {
  readonly statement: number;
  readonly client: number;
  readonly wait: number;
}

const readTimeouts: Timeouts = { statement: 1_250, client: 1_500, wait: 1_500 };
/** The wait, also in parts, is shorter than any caller's: nothing is written for one that has received an error. */
const writeTimeouts: Timeouts = { statement: 5_000, client: 6_000, wait: 4_000 };
/** They are short, as the primary can be asked instead of a standby. */
const standbyTimeouts: Timeouts = { statement: 300, client: 400, wait: 100 };
/** A lease that is kept later than this has run out. */
const leaseTimeouts: Timeouts = { statement: 2_000, client: 3_000, wait: 3_000 };
const standbySize = 2;
/** Milliseconds that work waits for a lock at first; then it is rolled back, and run again as one of a few. */
const lockTimeoutMs = 50;

/** The limits of a transaction that is run again if it would have to wait for a lock. */
const hastyLimits: TransactionLimits = { ...defaultLimits, lock: lockTimeoutMs };

/** Statements that follow each other on one connection for reading. */
const readsSharing = 32;

/** How the connections of a pool are divided. @param poolSize at least 2 */
export function divide(poolSize: number): { reads: number; writes: number; transactions: number } {
  const reads = Math.max(1, Math.floor(poolSize / 4));
  const writes = poolSize - reads;
  return { reads, writes, transactions: Math.max(1, Math.floor(writes / 2)) };
}

function sessionOf(timeouts: Timeouts, session: SessionParameters): SessionParameters {
  return { statement_timeout: timeouts.statement, ...ownSession, ...session };
}

/** Opens the database as the ordinary user. Connections are made when they are needed. */
export function openPostgresql(
  settings: PostgresSettings,
  migrations: Migrations,
  observer: DatabaseObserver,
  logger?: Logger,
  options: OpenOptions = {},
): OpenDatabase {
  const description = `PostgreSQL at ${settings.hosts.map(nameOf).join(",")}/${settings.name}`;
  const outage = logger ? outagesOf(description, logger) : new Outage(() => undefined);
  const { reads, writes, leases, standbys, size } = openLanes(settings, observer, outage, logger);

  const transaction: Transaction = options.rerunsWaiting
    ? rerunningTransactions(writes, size.transactions)
    : (work) => patientTransaction(writes, work, writeTimeouts.wait);

  // Statements with the same text mostly wait for the same lock. One of them does, and other transactions go on.
  const reruns = new Turns(writeTimeouts.wait, noTurn);
  async function write(text: string, options?: QueryOptions): Promise<Result> {
    const leftMs = waitLimit();
    try {
      return await writes.use((connection) => connection.query(text, options));
    } catch (error) {
      // 55P03: it would have had to wait for a lock, and has done nothing.
      if (sqlState(error) !== "55P03") throw error;
      const rerun = () => patientTransaction(writes, (query) => query(text, options), leftMs());
      return reruns.take(text, rerun, leftMs());
    }
  }

  const db = drizzleOver(write, transaction);
  const leasing = drizzleOverLane(leases);
  return {
    db,
    reads: drizzleOverLane(reads),
    leases: leasing,
    standbys: settings.readHosts && {
      leases: leasing,
      hosts: standbys.map(({ address, lane }) => ({
        address: nameOf(address),
        reads: drizzleOverLane(lane),
      })),
    },
    confirm: createConfirm(db),
    description,
    migrate: (report) => outage.noting(() => migrateAsOwner(settings, migrations, report)),
    isMigrated: () => isMigrated(db, migrations, startAnew),
    migrationStates: () => migrationStates(db, migrations, startAnew),
    requireOrdinaryUser: () => requireOrdinaryUser(db, migrations),
    isReachable: () =>
      isReachable(() =>
        outage.noting(async () => {
          await Promise.all([reads.open(), writes.open()]);
          // All connections of `writes` may be waiting for locks, which is no reason to be unready.
          if (!reads.isResponsive) throw connectionLost("the database does not respond");
          return true;
        }),
      ),
    close: async () => {
      const lanes = [reads, writes, leases, ...standbys.map(({ lane }) => lane)];
      await Promise.all(lanes.map((lane) => lane.close()));
    },
  };
}

type Transaction = <T>(work: (query: Query) => Promise<T>) => Promise<T>;

/** One limit for all the waits of a call, which starts now. @returns how many milliseconds of it are left */
function waitLimit(): () => number {
  const end = performance.now() + writeTimeouts.wait;
  return () => Math.max(0, end - performance.now());
}

/** A transaction that waits for locks as long as is usual. @param waitMs as {@link Lane.use} has it */
function patientTransaction<T>(writes: Lane, work: (query: Query) => Promise<T>, waitMs: number): Promise<T> {
  return writes.use((connection) => runTransaction(connection, work), true, waitMs);
}

/** Transactions that, where they would wait for a lock, are rolled back and run again as one of half of them. */
function rerunningTransactions(writes: Lane, transactions: number): Transaction {
  const knownToWait = new WorkQueue(Math.max(1, Math.floor(transactions / 2)));
  return async (work) => {
    const leftMs = waitLimit();
    try {
      return await writes.use((connection) => runTransaction(connection, work, hastyLimits), true);
    } catch (error) {
      // 55P03: it would have had to wait for a lock, and was rolled back.
      if (sqlState(error) !== "55P03") throw error;
      const rerun = () => patientTransaction(writes, work, leftMs());
      return knownToWait.run(rerun, { maxWaitMs: leftMs(), refuse: noTurn });
    }
  };
}

const nameOf = ({ host, port }: Address) => `${host}:${port}`;

type LaneSize = Pick<LaneOptions, "size"> &
  Partial<Pick<LaneOptions, "sharing" | "maxTransactions" | "connector">>;

function openLanes(settings: PostgresSettings, observer: DatabaseObserver, outage: Outage, logger?: Logger) {
  const login = ordinaryLogin(settings, logger);
  const hosts = openHosts(settings, settings.hosts, login, logger);
  const connectFailed = () => observer.connectFailed();
  const connector = new Connector(hosts, connectFailed);
  const size = divide(settings.poolSize);
  // A pooler gives the session to another client next, so nothing may be set in it.
  const isPooled = settings.pooler === "transaction";

  /** A lane to the primary, for single statements unless the options say more. */
  function primaryLane(
    name: string,
    timeouts: Timeouts,
    session: SessionParameters,
    options: LaneSize,
  ): Lane {
    const connection = (address: Address): ConnectionOptions => ({
      address,
      client: clientOptions(settings, address, login, isPooled ? {} : sessionOf(timeouts, session)),
      renewPassword: login.renew,
      prepare: !isPooled,
      timeoutMs: timeouts.client,
      async check(query) {
        await checkSession(query, isPooled);
        return hosts.check(query);
      },
      isDoubtful: (error) => hosts.isDoubtful(error),
    });
    const waitMs = timeouts.wait;
    return new Lane({
      name,
      connection,
      sharing: 1,
      maxTransactions: 0,
      connector,
      waitMs,
      observer,
      outage,
      ...options,
    });
  }

  const readOnly = { default_transaction_read_only: "on" };
  const reads = primaryLane("reads", readTimeouts, readOnly, { size: size.reads, sharing: readsSharing });
  const writes = primaryLane(
    "writes",
    writeTimeouts,
    { lock_timeout: lockTimeoutMs },
    { size: size.writes, maxTransactions: size.transactions },
  );
  // Its connector is its own, as it waits behind no other work.
  const ofLeases = { size: 1, connector: new Connector(hosts, connectFailed) };
  const leases = primaryLane("leases", leaseTimeouts, {}, ofLeases);

  /** A lane to a standby. Its sessions are its own, even if there is a pooler before the primary. */
  function standbyLane(address: Address): Lane {
    return new Lane({
      name: `reads ${nameOf(address)}`,
      connection: () => ({
        address,
        client: clientOptions(settings, address, login, sessionOf(standbyTimeouts, readOnly)),
        renewPassword: login.renew,
        prepare: true,
        timeoutMs: standbyTimeouts.client,
        // Each statement selects what kind of server it ran on (standbys.ts).
        check: checkResponds,
      }),
      size: standbySize,
      sharing: readsSharing,
      maxTransactions: 0,
      waitMs: standbyTimeouts.wait,
      // A standby that is away is reported where it is no longer read from. It is no want of connections.
      connector: new Connector(oneHost(address), () => undefined),
      observer,
    });
  }

  const standbys = settings.readHosts?.map((address) => ({ address, lane: standbyLane(address) })) ?? [];
  return { reads, writes, leases, standbys, size };
}
