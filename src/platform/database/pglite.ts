import { AsyncLocalStorage } from "node:async_hooks";
import { mkdirSync } from "node:fs";
import { setFlagsFromString } from "node:v8";
import { PGlite, type Transaction } from "@electric-sql/pglite";
import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/pglite";
import { isReachable, type OpenDatabase } from "./database.ts";
import { lockDirectory } from "./directory-lock.ts";
import { isMigrated, type Migrations } from "./migrations/migrations.ts";
import { runMigrations } from "./migrations/run-migrations.ts";
import { inStatementSpan, inTransactionSpan } from "./sql/statement-spans.ts";

/**
 * How a database is created. PostgreSQL's default of 128 MiB of buffers is memory that a process takes and never
 * releases, and a segment of its log is a file of zeros at first, by default of 16 MiB.
 */
const initDbStartParams = ["-c", "shared_buffers=16MB", "--wal-segsize=1"];

/**
 * V8's optimizing compiler takes 600 MiB and a second for one function of PostgreSQL, which every start keeps busy.
 * What it would save are milliseconds of statements that read thousands of rows.
 */
const withoutOptimizing = ["--no-wasm-tier-up", "--no-wasm-dynamic-tiering"];

/** An embedded database that is open. */
interface SharedClient {
  readonly client: Promise<PGlite>;
  readonly release: () => void;
  /** How many have opened it and not closed it. */
  users: number;
}

/** By directory. */
const open = new Map<string, SharedClient>();

/**
 * Opens the embedded database in this directory, for this process alone. Whoever opens it again meanwhile shares it,
 * and its one connection: a statement waits until the transaction before it has ended.
 * @throws DirectoryInUseError
 */
export async function openEmbedded(dataDir: string, migrations: Migrations): Promise<OpenDatabase> {
  const shared = open.get(dataDir) ?? start(dataDir);
  shared.users += 1;
  const client = await shared.client;
  const db = drizzle({ client });
  const startAnew = `delete ${dataDir}, and start again`;
  return {
    db,
    // There is one connection, and one statement at a time.
    reads: db,
    leases: db,
    standbys: undefined,
    // It has no standbys.
    confirm: async () => undefined,
    description: `embedded PostgreSQL in ${dataDir}`,
    migrate: (report) => runMigrations(db, migrations, startAnew, report),
    isMigrated: () => isMigrated(db, migrations, startAnew),
    // Its only user is a superuser, and is never used in production.
    requireOrdinaryUser: async () => undefined,
    isReachable: () => isReachable(() => db.execute(sql`select 1`).then(() => true)),
    async close() {
      shared.users -= 1;
      if (shared.users > 0) return;
      open.delete(dataDir);
      await client.close().finally(shared.release);
    },
  };
}

function start(dataDir: string): SharedClient {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const release = lockDirectory(dataDir);
  for (const flag of withoutOptimizing) setFlagsFromString(flag);
  const client = PGlite.create({ dataDir, initDbStartParams }).then(watched);
  const shared = { client, release, users: 0 };
  open.set(dataDir, shared);
  client.catch(() => {
    open.delete(dataDir);
    release();
  });
  return shared;
}

/** The transaction that the running code belongs to. */
const current = new AsyncLocalStorage<{ isOpen: boolean }>();

/**
 * Adds spans to the methods of the client that Drizzle calls. A transaction that used the client itself would wait for
 * the only connection, which it has, for ever: there it gets an error instead.
 */
function watched(client: PGlite): PGlite {
  const query = client.query.bind(client);
  const transaction = client.transaction.bind(client);
  client.query = async (text, ...rest) => {
    requireNoTransaction(text);
    return inStatementSpan(text, () => query(text, ...rest));
  };
  client.transaction = async (work) => {
    requireNoTransaction("another transaction");
    const own = { isOpen: true };
    const run = (tx: Transaction) => current.run(own, () => work(tracedIn(tx)));
    return inTransactionSpan(() => transaction(run)).finally(() => {
      own.isOpen = false;
    });
  };
  return client;
}

function requireNoTransaction(what: string): void {
  if (current.getStore()?.isOpen)
    throw new Error(`a transaction has the only connection, so its tx must run this: ${what}`);
}

function tracedIn(tx: Transaction): Transaction {
  const query = tx.query.bind(tx);
  return Object.assign(tx, {
    query: ((text, ...rest) =>
      inStatementSpan(text, () => query(text, ...rest))) satisfies Transaction["query"],
  });
}
