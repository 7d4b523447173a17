/** Migrations: SQL files in drizzle/. The history of a service is a table of its name in the schema `migrations`. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { max, min } from "drizzle-orm";
import { readMigrationFiles } from "drizzle-orm/migrator";
import { bigint, pgSchema, serial, text } from "drizzle-orm/pg-core";
import { endedConnection, sqlState } from "../../base/database-errors.ts";
import type { Database, MigrationState, OpenDatabase } from "../database.ts";

/** One service's migrations: its PostgreSQL schema, and the folder of its history. */
export interface Migrations {
  readonly schema: string;
  readonly folder: URL;
}

/** A migration needs a table that another session has locked. It has changed nothing, and can be run again. */
export class MigrationBlockedError extends Error {
  override readonly name = "MigrationBlockedError";

  /** @param holders the sessions that may have locked it */
  constructor(holders: readonly string[], options?: ErrorOptions) {
    const who = holders.length === 0 ? "" : ` Locks are held by ${holders.join(", ")}.`;
    super(`A migration needs a table that another session has locked.${who}`, options);
  }
}

/** The history in the database does not begin as this program's does: another one made the tables. */
export class ForeignHistoryError extends Error {
  override readonly name = "ForeignHistoryError";

  /** @param startAnew how an operator gets an empty database, in the imperative */
  constructor({ schema }: Migrations, startAnew: string) {
    super(
      `The tables of ${schema} were made by an earlier version, whose migrations this one does not continue: ${startAnew}.`,
    );
  }
}

interface Retries {
  /** Milliseconds after which no further attempt begins. */
  readonly retryForMs: number;
  /** Called for each attempt that was blocked and will be repeated. */
  readonly blocked: (error: MigrationBlockedError) => void;
  /** Called with what takes long, as by {@link OpenDatabase.migrate}. */
  readonly report?: (message: string) => void;
}

/** Milliseconds between two attempts. Meanwhile the statements that have waited behind the first attempt go on. */
const retryMs = 2_000;

/**
 * Migrates, and tries again while a table is locked. @throws MigrationBlockedError if it still is when the time is over
 */
export async function migrateWithRetries(
  { migrate }: Pick<OpenDatabase, "migrate">,
  { retryForMs, blocked, report }: Retries,
): Promise<void> {
  const until = performance.now() + retryForMs;
  for (;;) {
    try {
      return await migrate(report);
    } catch (error) {
      if (!(error instanceof MigrationBlockedError) || performance.now() + retryMs > until) throw error;
      blocked(error);
    }
    await setTimeout(retryMs);
  }
}

interface Migration {
  /** That of its file, without the extension. */
  readonly name: string;
  readonly statements: readonly string[];
  /** SHA-256 of the file, in hex. */
  readonly hash: string;
  /** When the migration was generated, in milliseconds since the epoch; greater than that of each earlier migration. */
  readonly createdAt: number;
}

/** All migrations of this program, in the order in which they are run. */
export function allMigrations({ folder }: Pick<Migrations, "folder">): Migration[] {
  const migrationsFolder = fileURLToPath(folder);
  const journal = readFileSync(join(migrationsFolder, "meta/_journal.json"), "utf8");
  const { entries }: { entries: readonly { tag: string }[] } = JSON.parse(journal);
  return readMigrationFiles({ migrationsFolder }).map((file, index) => ({
    name: entries[index]?.tag ?? file.hash,
    statements: file.sql,
    hash: file.hash,
    createdAt: file.folderMillis,
  }));
}

export const histories = pgSchema("migrations");

/** A service's history: a row for each migration that was run, in the table of Drizzle's own migrator. */
export function historyOf({ schema }: Migrations) {
  return histories.table(schema, {
    id: serial("id").primaryKey(),
    hash: text("hash").notNull(),
    createdAt: bigint("created_at", { mode: "number" }),
  });
}

/**
 * {@link Migration.createdAt} of the newest migration that was run, maybe by a newer program; 0 if there is none.
 * @throws ForeignHistoryError with `startAnew` if the first that was run is not the first of this program
 */
export async function newestRun(db: Database, migrations: Migrations, startAnew: string): Promise<number> {
  const history = historyOf(migrations);
  const ends = { first: min(history.createdAt), newest: max(history.createdAt) };
  const { first = null, newest = null } = (await db.select(ends).from(history))[0] ?? {};
  if (first === null || newest === null) return 0;
  if (first !== allMigrations(migrations)[0]?.createdAt) throw new ForeignHistoryError(migrations, startAnew);
  return newest;
}

/** All migrations, in their order. Rejects if the database does not respond, and as {@link newestRun} does. */
export async function migrationStates(
  db: Database,
  migrations: Migrations,
  startAnew: string,
): Promise<readonly MigrationState[]> {
  const newest = await newestRun(db, migrations, startAnew).catch((error: unknown) => {
    // undefined_table, invalid_schema_name or insufficient_privilege mean that there is no history yet. A user who may
    // not connect gets insufficient_privilege, too.
    const isMissing = ["42P01", "3F000", "42501"].includes(sqlState(error) ?? "");
    if (isMissing && !endedConnection(error)) return 0;
    throw error;
  });
  return allMigrations(migrations).map(({ name, createdAt }) => ({ name, isRun: createdAt <= newest }));
}

/** Whether every migration of this program has been run. Rejects as {@link migrationStates} does. */
export async function isMigrated(db: Database, migrations: Migrations, startAnew: string): Promise<boolean> {
  return (await migrationStates(db, migrations, startAnew)).every(({ isRun }) => isRun);
}
