/**
 * The databases that tests run on. Owns how a test file finds PostgreSQL and gets a database of its own,
 * and the record of what a run has really exercised: a suite that quietly skipped its real database
 * must not look like one that passed on it.
 */
import { randomBytes } from "node:crypto";
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import postgres from "postgres";
import type { DatabaseSettings } from "../../src/platform/database/settings.ts";
import { requiredPostgresUrl } from "./postgresql/server.ts";

/** Names the file of this run that {@link exercised} writes to; set in vitest.config.ts, inherited by the workers. */
export const BACKENDS_FILE = "GATEPOST_TEST_BACKENDS_FILE";

const MIGRATION_ROLE = { user: "gatepost_migration_test", password: "migration-test" };
const APP_ROLE = { user: "gatepost_app_test", password: "app-test" };

/** A database that belongs to one test file, and the two roles that a deployment has too. */
export interface TestDatabase {
  readonly host: string;
  readonly port: number;
  readonly name: string;
  /** The ordinary role: it may connect, and do what migrations grant it. */
  readonly user: string;
  readonly password: string;
  /** The role that owns the database. */
  readonly migrationUser: string;
  readonly migrationPassword: string;
  /** Drops the database, open connections or not; `TEST_KEEP_DATABASES=1` keeps it. */
  drop(): Promise<void>;
}

export type PostgresSettings = Extract<DatabaseSettings, { kind: "postgres" }>;

/** The settings of a service on this database. */
export function postgresSettings({ host, port, ...database }: Omit<TestDatabase, "drop">): PostgresSettings {
  const hosts = [{ host, port }];
  return {
    kind: "postgres",
    ...database,
    hosts,
    readHosts: undefined,
    migrationHosts: hosts,
    ssl: "disable",
    sslCa: undefined,
    pooler: "none",
    poolSize: 4,
  };
}

/** Says in the closing lines of the run that tests ran on this backend, such as `PostgreSQL 17.2`. */
export function exercised(backend: string): void {
  const file = process.env[BACKENDS_FILE];
  if (file !== undefined) appendFileSync(file, `${backend}\n`);
}

/** What {@link exercised} was told during this run, each once. */
export function exercisedBackends(): string[] {
  const file = process.env[BACKENDS_FILE];
  if (file === undefined || !existsSync(file)) return [];
  return [...new Set(readFileSync(file, "utf8").trim().split("\n"))].filter((line) => line !== "").sort();
}

/** The name of the database that others of this run are copied from. */
export function templateOfRun(): string {
  const run = process.env[BACKENDS_FILE]?.replace(/.*gatepost-test-/, "").replaceAll("-", "");
  return `gatepost_template_${run ?? process.pid}`;
}

/** Drops the template of this run, if there is one. */
export async function dropTemplateOfRun(): Promise<void> {
  await asAdmin(requiredPostgresUrl().href, (sql) =>
    sql.unsafe(`drop database if exists ${templateOfRun()} with (force)`),
  );
}

/**
 * Creates `gatepost_test_<random>` with the two roles, which exist once on the server. The database
 * belongs to the migration role; the ordinary one gets nothing but CONNECT, so a migration that forgets
 * a grant fails in the tests and not in production. Records the server as exercised.
 *
 * @param template a database that this function has made, to be copied; an empty one unless given
 * @param admin a superuser's URL of the server; the one of the tests unless given
 */
export async function createTestDatabase({
  template,
  admin = requiredPostgresUrl(),
}: {
  readonly template?: string;
  readonly admin?: URL;
} = {}): Promise<TestDatabase> {
  const name = `gatepost_test_${randomBytes(6).toString("hex")}`;
  const version = await asAdmin(admin.href, async (sql) => {
    for (const role of [MIGRATION_ROLE, APP_ROLE]) await createRole(sql, role);
    await sql.unsafe(
      `create database ${name} owner ${MIGRATION_ROLE.user} template ${template ?? "template0"}`,
    );
    await sql.unsafe(`revoke all on database ${name} from public`);
    await sql.unsafe(`grant connect on database ${name} to ${APP_ROLE.user}`);
    const [row] = await sql<{ version: string }[]>`select current_setting('server_version') as version`;
    return row?.version.split(" ")[0] ?? "";
  });
  if (template === undefined) {
    const inside = new URL(admin);
    inside.pathname = `/${name}`;
    await asAdmin(inside.href, async (sql) => sql`revoke all on schema public from public`);
  }
  exercised(`PostgreSQL ${version}`);
  return {
    host: admin.hostname,
    port: Number(admin.port || 5432),
    name,
    ...APP_ROLE,
    migrationUser: MIGRATION_ROLE.user,
    migrationPassword: MIGRATION_ROLE.password,
    async drop() {
      if (process.env["TEST_KEEP_DATABASES"] === "1") return;
      await asAdmin(admin.href, async (sql) => sql.unsafe(`drop database if exists ${name} with (force)`));
    },
  };
}

/** Creates a login role unless it is there; another process that creates it first is as good. */
async function createRole(sql: postgres.Sql, { user, password }: typeof APP_ROLE): Promise<void> {
  await sql.unsafe(`
    do $$ begin
      create role ${user} login password '${password}';
    exception when duplicate_object or unique_violation then null;
    end $$`);
}

async function asAdmin<T>(url: string, work: (sql: postgres.Sql) => Promise<T>): Promise<T> {
  const sql = postgres(url, { max: 1, connect_timeout: 60, onnotice: () => undefined });
  try {
    return await work(sql);
  } finally {
    await sql.end({ timeout: 1 });
  }
}
