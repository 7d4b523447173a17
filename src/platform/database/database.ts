/** The database, embedded (PGlite) or PostgreSQL, behind one Drizzle type. open.ts opens either. */
import type { PgDatabase, PgQueryResultHKT } from "drizzle-orm/pg-core";
import { withTimeout } from "../base/deadlines.ts";

/** A database, or a transaction in it: both run queries. */
export type Database = PgDatabase<PgQueryResultHKT, Record<string, never>>;

/** Runs statements of hand-written SQL. */
export type Executor = Pick<Database, "execute">;

/** Runs statements that only read, and lock nothing. */
export type Reads = Pick<Database, "select" | "execute">;

/**
 * Makes a commit that the synchronous standbys, if there are any, confirm, and with it every commit that was visible.
 * @throws an error that means that the database is unavailable, if they do not
 */
export type Confirm = () => Promise<void>;

export interface StandbyHost {
  /** For messages: "host:port". */
  readonly address: string;
  /** Runs look-ups on the standby. They fail soon, as the primary can be asked instead. */
  readonly reads: Reads;
}

/** The standbys that a service reads from. standbys.ts decides when it may. */
export interface StandbyConnections {
  readonly hosts: readonly StandbyHost[];
  /** As {@link OpenDatabase.leases}. */
  readonly leases: Executor;
}

export interface OpenOptions {
  /** Whether a transaction that would wait for a lock is rolled back and run again, as one of a few. */
  readonly rerunsWaiting?: boolean;
}

/** A migration of this program, by the name of its file, and whether it has been run. */
export type MigrationState = { readonly name: string; readonly isRun: boolean };

export interface OpenDatabase {
  /** Runs everything. Each statement or transaction has a connection to itself, for which it may have to wait. */
  readonly db: Database;
  /** Runs look-ups: short statements that only read, on connections of their own. They are ended after a second. */
  readonly reads: Reads;
  /** Runs the statements by which a process keeps a lease or shows that it lives: they wait behind no other work. */
  readonly leases: Executor;
  /** The standbys that look-ups may be read from; undefined if there are none. */
  readonly standbys: StandbyConnections | undefined;
  readonly confirm: Confirm;
  /** For messages: "embedded PostgreSQL in .data/database" or "PostgreSQL at host:port/name". */
  readonly description: string;
  /**
   * Brings the schema up to date as the migration user, one process at a time, and grants the ordinary user its rows.
   * @param report called with what takes long: an index that is built, another process that migrates
   * @throws MigrationBlockedError if another session has locked a table for a second: try again later
   * @throws ForeignHistoryError if an earlier version, whose migrations this one does not continue, made the tables
   */
  migrate(report?: (message: string) => void): Promise<void>;
  /** Whether every migration has been run. Rejects if the database is away, or with ForeignHistoryError. */
  isMigrated(): Promise<boolean>;
  /** All migrations, in their order. Rejects as {@link isMigrated} does. */
  migrationStates(): Promise<readonly MigrationState[]>;
  /**
   * @throws SettingsError if the ordinary user is a superuser, creates roles, or owns the database, a schema or a table
   */
  requireOrdinaryUser(): Promise<void>;
  /** Whether the database, a primary, responds within two seconds. Never rejects. */
  isReachable(): Promise<boolean>;
  close(): Promise<void>;
}

/** Milliseconds in which a reachable database must respond. */
const reachableTimeoutMs = 2_000;

/** Whether the check resolves to true within two seconds. Never rejects. */
export async function isReachable(check: () => Promise<boolean>): Promise<boolean> {
  try {
    return await withTimeout(check(), reachableTimeoutMs, () => false);
  } catch {
    return false;
  }
}

/**
 * Begins a statement that PostgreSQL plans each time that it runs. The plan of another one is kept while its tables
 * grow, and one that was made while a table was small reads all of it.
 */
export const plannedEachTime = "/* planned each time */ ";

/** A list of values as one array parameter; each value is quoted, and a text may be any. */
export function arrayLiteral(values: readonly (string | number)[]): string {
  return `{${values.map((value) => `"${escaped(String(value))}"`).join(",")}}`;
}

/** Few texts have anything to escape, and a test of that takes a third of the time of a replacement. */
function escaped(text: string): string {
  return /["\\]/.test(text) ? text.replaceAll(/["\\]/g, "\\$&") : text;
}
