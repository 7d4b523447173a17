/**
 * The database: embedded (PGlite) or PostgreSQL (postgres.js), behind one Drizzle type, so that every query
 * is written once. open.ts opens either.
 */
import { setTimeout } from "node:timers/promises";
import { sql } from "drizzle-orm";
import type { PgDatabase, PgQueryResultHKT } from "drizzle-orm/pg-core";

/** A database, or a transaction in it: both run queries. */
export type Database = PgDatabase<PgQueryResultHKT, Record<string, never>>;

/** An open database. */
export interface OpenDatabase {
  readonly db: Database;
  /** For messages: "embedded PostgreSQL in .data/<service>" or "PostgreSQL at host:port/name". */
  readonly description: string;
  /**
   * Brings the service's schema up to date, as the migration user, and grants the ordinary user SELECT,
   * INSERT, UPDATE and DELETE on it and nothing more. One process at a time; can be run again.
   */
  migrate(): Promise<void>;
  /** Whether every migration of this program has been run. Rejects if the database does not respond. */
  isMigrated(): Promise<boolean>;
  /**
   * Runs a text of several statements without parameters; it may contain `begin` and `commit`.
   * @returns the rows of all statements
   */
  script(text: string): Promise<Record<string, unknown>[]>;
  /** Whether the database responds within two seconds. Never rejects. */
  isReachable(): Promise<boolean>;
  close(): Promise<void>;
}

/** A database that also runs a text of several statements. */
export interface ScriptedDatabase extends Pick<OpenDatabase, "script"> {
  readonly db: Database;
}

/** Milliseconds in which a reachable database must respond. */
const reachableTimeoutMs = 2_000;

/** Whether the database responds within the timeout. Never rejects. */
export async function isReachable(db: Database): Promise<boolean> {
  const done = new AbortController();
  try {
    return await Promise.race([
      db.execute(sql`select 1`).then(() => true),
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
