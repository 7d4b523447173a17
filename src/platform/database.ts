/**
 * The database: embedded (PGlite) or PostgreSQL (postgres.js), behind one Drizzle type, so that every query
 * is written once. Opening does not connect: where PostgreSQL is away the process still starts, says that it
 * is not ready, and answers 503 until the database is back.
 */
import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { PGlite } from "@electric-sql/pglite";
import { type SQL, sql } from "drizzle-orm";
import { readMigrationFiles } from "drizzle-orm/migrator";
import type { PgDatabase, PgQueryResultHKT } from "drizzle-orm/pg-core";
import { drizzle as drizzlePglite } from "drizzle-orm/pglite";
import { migrate as migratePglite } from "drizzle-orm/pglite/migrator";
import { drizzle as drizzlePostgres } from "drizzle-orm/postgres-js";
import { migrate as migratePostgres } from "drizzle-orm/postgres-js/migrator";
import postgres from "postgres";
import { sqlState } from "./database-errors.ts";
import type { DatabaseSettings } from "./database-settings.ts";

/** What repositories query: a database, or a transaction in it. */
export type Database = PgDatabase<PgQueryResultHKT, Record<string, never>>;

/** One service's migrations: its PostgreSQL schema, and the folder of its history. */
export interface Migrations {
  readonly schema: string;
  readonly folder: URL;
}

/** An open database. */
export interface OpenDatabase {
  readonly db: Database;
  /** For people: "embedded PostgreSQL in .data/auth" or "PostgreSQL at host:port/name". */
  readonly description: string;
  /**
   * Brings the service's schema up to date, as the migration user, and grants the ordinary user SELECT,
   * INSERT, UPDATE and DELETE on it and nothing more. One process at a time; can be run again.
   */
  migrate(): Promise<void>;
  /** Whether every migration of this program has been run. Throws where the database does not answer. */
  isMigrated(): Promise<boolean>;
  close(): Promise<void>;
}

type PostgresSettings = Extract<DatabaseSettings, { kind: "postgres" }>;

/** Seconds that connecting, and any one statement, may take. */
const timeoutSeconds = 5;

function connect(settings: PostgresSettings, user: string, password: string | undefined, max: number) {
  const { host, port, name, ssl, sslCa } = settings;
  return postgres({
    host,
    port,
    database: name,
    username: user,
    ...(password !== undefined && { password }),
    max,
    ssl:
      ssl === "disable" ? false : { rejectUnauthorized: ssl === "verify-full", ...(sslCa && { ca: sslCa }) },
    connect_timeout: timeoutSeconds,
    idle_timeout: 300,
    connection: { application_name: "gatepost" },
    onnotice: () => undefined,
  });
}

/** Opens the database as the ordinary user. */
export async function openDatabase(
  settings: DatabaseSettings,
  migrations: Migrations,
): Promise<OpenDatabase> {
  if (settings.kind === "embedded") return openEmbedded(settings.dataDir, migrations);
  const client = connect(settings, settings.user, settings.password, settings.poolSize);
  const db = drizzlePostgres({ client });
  return {
    db,
    description: `PostgreSQL at ${settings.host}:${settings.port}/${settings.name}`,
    migrate: () => migratePostgresql(settings, migrations),
    isMigrated: () => isMigrated(db, migrations),
    close: () => client.end({ timeout: timeoutSeconds }),
  };
}

async function openEmbedded(dataDir: string, migrations: Migrations): Promise<OpenDatabase> {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const client = await PGlite.create({ dataDir });
  const db = drizzlePglite({ client });
  return {
    db,
    description: `embedded PostgreSQL in ${dataDir}`,
    migrate: () => migratePglite(db, migrationConfig(migrations)),
    isMigrated: () => isMigrated(db, migrations),
    close: () => client.close(),
  };
}

/** Any fixed number; whoever migrates holds it as an advisory lock. */
const migrationLock = 7_214_033;

function migrationConfig({ schema, folder }: Migrations) {
  return { migrationsFolder: fileURLToPath(folder), migrationsSchema: "migrations", migrationsTable: schema };
}

async function migratePostgresql(settings: PostgresSettings, migrations: Migrations): Promise<void> {
  const client = connect(settings, settings.migrationUser, settings.migrationPassword, 1);
  try {
    const db = drizzlePostgres({ client });
    await db.execute(sql`select pg_advisory_lock(${migrationLock})`);
    await migratePostgres(db, migrationConfig(migrations));
    const schema = sql.identifier(migrations.schema);
    const user = sql.identifier(settings.user);
    await db.execute(sql`grant usage on schema migrations, ${schema} to ${user}`);
    await db.execute(sql`grant select on all tables in schema migrations to ${user}`);
    await db.execute(sql`grant select, insert, update, delete on all tables in schema ${schema} to ${user}`);
    await db.execute(sql`grant usage on all sequences in schema ${schema} to ${user}`);
  } finally {
    await client.end({ timeout: timeoutSeconds });
  }
}

async function isMigrated(db: Database, migrations: Migrations): Promise<boolean> {
  const newest = readMigrationFiles(migrationConfig(migrations)).at(-1)?.folderMillis ?? 0;
  const history = sql`${sql.identifier("migrations")}.${sql.identifier(migrations.schema)}`;
  try {
    const [done] = await rows<{ at: string | null }>(
      db,
      sql`select max(created_at)::text as at from ${history}`,
    );
    return Number(done?.at ?? 0) >= newest;
  } catch (error) {
    // There is no history yet: undefined_table, invalid_schema_name, or no right to see it.
    if (["42P01", "3F000", "42501"].includes(sqlState(error) ?? "")) return false;
    throw error;
  }
}

/** Rows of a statement that the query builder has no words for. Column types are the driver's. */
export async function rows<T extends Record<string, unknown>>(db: Database, statement: SQL): Promise<T[]> {
  const result: unknown = await db.execute(statement);
  // postgres.js answers an array of rows, PGlite an object that has them.
  if (Array.isArray(result)) return [...result];
  if (typeof result === "object" && result !== null && "rows" in result && Array.isArray(result.rows)) {
    return [...result.rows];
  }
  throw new Error("the driver answered neither an array nor an object with rows");
}

/** A list of values as one array parameter. Each must be free of commas, quotes, braces and backslashes. */
export function arrayLiteral(values: readonly string[]): string {
  return `{${values.join(",")}}`;
}
