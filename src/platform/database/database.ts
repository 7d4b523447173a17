/**
 * The database: embedded (PGlite) or PostgreSQL (postgres.js), behind one Drizzle type, so that every query
 * is written once. open.ts opens either.
 */
import { setTimeout } from "node:timers/promises";
import type { PgDatabase, PgQueryResultHKT } from "drizzle-orm/pg-core";

/** A database, or a transaction in it: both run queries. */
export type Database = PgDatabase<PgQueryResultHKT, Record<string, never>>;

/** What runs statements of hand-written SQL. */
export type Executor = Pick<Database, "execute">;

/** What runs statements that only read, and lock nothing. */
export type Reads = Pick<Database, "select" | "execute">;

/**
 * Makes a commit that waits for the standbys, if commits wait for any, and resolves once they have confirmed it. For
 * `confirmFound` of confirm.ts.
 * @throws an error that means that the database is unavailable, if they do not confirm it
 */
export type Confirm = () => Promise<void>;

/** A standby that may be read from. */
export interface StandbyHost {
  /** For messages: "host:port". */
  readonly address: string;
  /** Look-ups there. They fail soon, as the primary can be asked instead. */
  readonly reads: Reads;
}

/** Where a service reads besides the primary. standbys.ts knows when it may. */
export interface StandbyConnections {
  readonly hosts: readonly StandbyHost[];
  /** On the primary, a connection for keeping leases, which waits behind no other work. */
  readonly leases: Executor;
}

/** An open database. */
export interface OpenDatabase {
  /**
   * For everything: each statement or transaction has a connection to itself, for which it may have to wait. Where a
   * transaction has to wait for a lock, it is rolled back and its work is done once more: the work changes nothing but the
   * database.
   */
  readonly db: Database;
  /**
   * For look-ups that many wait for: short statements that only read. They have connections of their own, so that
   * they never wait behind a statement that waits for a lock. One that takes longer than a second is ended.
   */
  readonly reads: Reads;
  /** Undefined where no standbys are read from. */
  readonly standbys: StandbyConnections | undefined;
  readonly confirm: Confirm;
  /** For messages: "embedded PostgreSQL in .data/<service>" or "PostgreSQL at host:port/name". */
  readonly description: string;
  /**
   * Brings the service's schema up to date, as the migration user, and grants the ordinary user SELECT,
   * INSERT, UPDATE and DELETE on it and nothing more. One process at a time; can be run again.
   * @param tell is told what takes long: an index that is built, and another process that migrates, again and again
   * @throws MigrationBlockedError if somebody else has locked a table for a second; then it is to be tried later
   */
  migrate(tell?: (message: string) => void): Promise<void>;
  /** Whether every migration of this program has been run. Rejects if the database does not respond. */
  isMigrated(): Promise<boolean>;
  /**
   * Checks that the ordinary user is one: no superuser, no creator of roles, and no owner of the database, schemas or tables.
   * @throws SettingsError if it is; another error if the database does not respond
   */
  requireOrdinaryUser(): Promise<void>;
  /**
   * Runs a text of several statements without parameters; it may contain `begin` and `commit`.
   * @returns the rows of all statements
   */
  script(text: string): Promise<Record<string, unknown>[]>;
  /** Whether the database, a primary, responds within two seconds. Never rejects. */
  isReachable(): Promise<boolean>;
  close(): Promise<void>;
}

/** A database that also runs a text of several statements. */
export interface ScriptedDatabase extends Pick<OpenDatabase, "script"> {
  readonly db: Database;
}

/** Milliseconds in which a reachable database must respond. */
const reachableTimeoutMs = 2_000;

/** Whether the check says so within the timeout. Never rejects. */
export async function isReachable(check: () => Promise<boolean>): Promise<boolean> {
  const done = new AbortController();
  try {
    return await Promise.race([
      check(),
      setTimeout(reachableTimeoutMs, false, { signal: done.signal, ref: false }),
    ]);
  } catch {
    return false;
  } finally {
    done.abort();
  }
}

/** A list of values as one array parameter; each value is quoted and may be any text. */
export function arrayLiteral(values: readonly string[]): string {
  return `{${values.map((value) => `"${value.replaceAll(/["\\]/g, "\\$&")}"`).join(",")}}`;
}
