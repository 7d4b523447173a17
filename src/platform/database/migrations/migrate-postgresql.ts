/** Migrations on PostgreSQL, as the user that owns the schemas, one process at a time. */
import { setTimeout } from "node:timers/promises";
import { sql } from "drizzle-orm";
import type { PostgresJsDatabase } from "drizzle-orm/postgres-js";
import { sqlState } from "../../base/database-errors.ts";
import { clientOptions, ownSession } from "../connections/client-options.ts";
import type { Connection, ConnectionOptions } from "../connections/connection.ts";
import { Connector } from "../connections/connector.ts";
import { drizzleOver, runTransaction } from "../connections/drizzle-over.ts";
import { checkResponds } from "../connections/session.ts";
import type { Executor } from "../database.ts";
import { openHosts } from "../failover/open-hosts.ts";
import type { Address, PostgresSettings } from "../settings.ts";
import { boolean } from "../sql/readers.ts";
import { computed, rows, selection } from "../sql/statements.ts";
import { whoHoldsAdvisoryLock, whoHoldsLocks } from "./lock-holders.ts";
import { MigrationBlockedError, type Migrations } from "./migrations.ts";
import { runMigrations } from "./run-migrations.ts";

/** How to get an empty database, where this one has another history. */
export const startAnew = "create an empty database, name it by DB_NAME, and run npm run migrate";

/** The key of the advisory lock that a migrating process holds: any fixed number. */
const migrationLock = 7_214_033;
/** Milliseconds between two attempts to get that lock. */
const migrationLockRetryMs = 100;
/** Milliseconds between two queries for the process that has it, which read all locks of the server. */
const migrationHolderMs = 5_000;
/** Milliseconds that a statement waits for a lock: more than deadlock_timeout (1 s), which cancels an autovacuum. */
const migrationLockTimeoutMs = 1_100;

/**
 * Migrates as the owner, on a connection whose statements have no limit, and grants the ordinary user its privileges.
 * @throws MigrationBlockedError if another session has locked a table
 * @throws ForeignHistoryError if the database has another history
 */
export async function migrateAsOwner(
  settings: PostgresSettings,
  migrations: Migrations,
  report?: (message: string) => void,
): Promise<void> {
  const connection = await connectAsOwner(settings);
  const db = drizzleOver(
    (text, options) => connection.query(text, options),
    (work) => runTransaction(connection, work, { lock: migrationLockTimeoutMs, idle: 0 }),
  );
  try {
    await checkForClient(db);
    await becomeTheOnlyOne(db, report);
    await runMigrations(db, migrations, startAnew, report);
    await grantPrivileges(db, migrations.schema, settings.user);
  } catch (error) {
    if (sqlState(error) !== "55P03") throw error;
    throw new MigrationBlockedError(await whoHoldsLocks(db, ["migrations", migrations.schema]), {
      cause: error,
    });
  } finally {
    await connection.terminate();
  }
}

function connectAsOwner(settings: PostgresSettings): Promise<Connection> {
  const owner = { user: settings.migrationUser, password: settings.migrationPassword };
  const hosts = openHosts(settings, settings.migrationHosts, owner);
  const options = (address: Address): ConnectionOptions => ({
    address,
    prepare: false,
    timeoutMs: Number.POSITIVE_INFINITY,
    client: clientOptions(settings, address, owner, {
      ...ownSession,
      statement_timeout: "0",
      lock_timeout: migrationLockTimeoutMs,
    }),
    async check(query) {
      await checkResponds(query);
      return hosts.check(query);
    },
  });
  return new Connector(hosts, () => undefined).connect(options, () => undefined);
}

/** Lets the server end a statement whose client is gone. Windows cannot tell (22023), and goes on without. */
export async function checkForClient(db: Executor, interval = "10s"): Promise<void> {
  try {
    await db.execute(sql`select set_config('client_connection_check_interval', ${interval}, false)`);
  } catch (error) {
    if (sqlState(error) !== "22023") throw error;
  }
}

/** Grants the ordinary user what it needs on the schema, and reading the histories of migrations. */
async function grantPrivileges(db: PostgresJsDatabase, name: string, ordinaryUser: string): Promise<void> {
  const [schema, user] = [sql.identifier(name), sql.identifier(ordinaryUser)];
  await db.execute(sql`grant usage on schema migrations to ${user}`);
  await db.execute(sql`grant select on all tables in schema migrations to ${user}`);
  await db.execute(sql`grant usage on schema ${schema} to ${user}`);
  await db.execute(sql`grant select, insert, update, delete on all tables in schema ${schema} to ${user}`);
  await db.execute(sql`grant usage on all sequences in schema ${schema} to ${user}`);
}

/** Waits until no other process migrates, by trying: the building of an index would wait for a statement that waits. */
async function becomeTheOnlyOne(db: PostgresJsDatabase, report?: (message: string) => void): Promise<void> {
  const taken = selection({ isTaken: computed(boolean, sql`pg_try_advisory_lock(${migrationLock})`) });
  let queryAt = 0;
  for (;;) {
    const [lock] = await rows(db, taken, sql`select ${taken}`);
    if (lock?.isTaken) return;
    if (report && performance.now() >= queryAt) {
      const holder = await whoHoldsAdvisoryLock(db, migrationLock);
      if (holder) {
        report(`Another process migrates: ${holder}. Waiting until it is done.`);
        queryAt = performance.now() + migrationHolderMs;
      }
    }
    await setTimeout(migrationLockRetryMs);
  }
}
