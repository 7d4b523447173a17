/**
 * The database: embedded (PGlite) or PostgreSQL (postgres.js), behind one Drizzle type, so that every query
 * is written once. open.ts opens either.
 */
import { setTimeout } from "node:timers/promises";
import { sql } from "drizzle-orm";
import type { PgDatabase, PgQueryResultHKT } from "drizzle-orm/pg-core";

/** What repositories query: a database, or a transaction in it. */
export type Database = PgDatabase<PgQueryResultHKT, Record<string, never>>;

/** An open database. */
export interface OpenDatabase {
  readonly db: Database;
  /** For people: "embedded PostgreSQL in .data/<service>" or "PostgreSQL at host:port/name". */
  readonly description: string;
  /**
   * Brings the service's schema up to date, as the migration user, and grants the ordinary user SELECT,
   * INSERT, UPDATE and DELETE on it and nothing more. One process at a time; can be run again.
   */
  migrate(): Promise<void>;
  /** Whether every migration of this program has been run. Throws where the database does not answer. */
  isMigrated(): Promise<boolean>;
  /**
   * Runs a text of several statements without parameters, with `begin` and `commit` in it or not. @returns the
   * rows of all of them
   */
  script(text: string): Promise<Record<string, unknown>[]>;
  /** Whether the database answers, within two seconds. Never throws. */
  answers(): Promise<boolean>;
  close(): Promise<void>;
}

/** A database that also runs several statements at once. */
export interface ScriptedDatabase extends Pick<OpenDatabase, "script"> {
  readonly db: Database;
}

/** Milliseconds in which a database that is there answers. */
const answerMs = 2_000;

/** Whether the database answers in time. Never throws. */
export async function answers(db: Database): Promise<boolean> {
  const answered = new AbortController();
  try {
    return await Promise.race([
      db.execute(sql`select 1`).then(() => true),
      setTimeout(answerMs, false, { signal: answered.signal, ref: false }),
    ]);
  } catch {
    return false;
  } finally {
    answered.abort();
  }
}

/** A list of values as one array parameter; quoted, so that each may hold anything. */
export function arrayLiteral(values: readonly string[]): string {
  return `{${values.map((value) => `"${value.replaceAll(/["\\]/g, "\\$&")}"`).join(",")}}`;
}
