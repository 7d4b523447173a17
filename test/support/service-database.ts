/** A database of a test's own, opened as a service opens it, without a server. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import postgres from "postgres";
import type { OpenDatabase } from "../../src/platform/database/database.ts";
import type { Migrations } from "../../src/platform/database/migrations/migrations.ts";
import { openDatabase } from "../../src/platform/database/open.ts";
import type { DatabaseSettings } from "../../src/platform/database/settings.ts";
import {
  createTestDatabase,
  exercised,
  type PostgresSettings,
  postgresSettings,
  type TestDatabase,
} from "./backends.ts";
import { copyEmbeddedDatabase, copyEmptyEmbeddedDatabase } from "./embedded-template.ts";
import { createMigratedDatabase } from "./migrated-database.ts";
import { requiredPostgresUrl } from "./postgresql/server.ts";
import type { Backend } from "./servers.ts";

export interface ServiceDatabase {
  readonly settings: DatabaseSettings;
  /** As the ordinary user, unless other settings are given. An embedded one can be opened once at a time. */
  open(settings?: Partial<PostgresSettings>): Promise<OpenDatabase>;
  /** Ends every connection of the service from the side of the server. */
  terminate(): Promise<void>;
  /** Closes what was opened, and removes the database. */
  drop(): Promise<void>;
}

/** Creates it; nothing is migrated yet. */
export function createServiceDatabase(backend: Backend, migrations: Migrations): Promise<ServiceDatabase> {
  return createDatabase(backend, migrations, {
    embedded: copyEmptyEmbeddedDatabase,
    postgres: createTestDatabase,
  });
}

/** Creates it with everything migrated, as a copy: for tests that are about something else. */
export function createMigratedServiceDatabase(
  backend: Backend,
  migrations: Migrations,
): Promise<ServiceDatabase> {
  return createDatabase(backend, migrations, {
    embedded: copyEmbeddedDatabase,
    postgres: createMigratedDatabase,
  });
}

/** How a database is made, on either backend. */
interface Origin {
  /** Puts it into this directory. */
  readonly embedded: (dataDir: string) => Promise<void>;
  readonly postgres: () => Promise<TestDatabase>;
}

async function createDatabase(
  backend: Backend,
  migrations: Migrations,
  origin: Origin,
): Promise<ServiceDatabase> {
  const opened: OpenDatabase[] = [];
  async function open(settings: DatabaseSettings): Promise<OpenDatabase> {
    const database = await openDatabase(settings, migrations);
    opened.push(database);
    return database;
  }
  const close = () => Promise.all(opened.map((database) => database.close()));

  if (backend === "PGlite") {
    const directory = mkdtempSync(join(tmpdir(), "gatepost-test-"));
    exercised("PGlite (embedded)");
    const settings = { kind: "embedded", dataDir: join(directory, "database") } as const;
    await origin.embedded(settings.dataDir);
    return {
      settings,
      open: () => open(settings),
      terminate: () => Promise.reject(new Error("an embedded database has no connections")),
      async drop() {
        await close();
        rmSync(directory, { recursive: true, force: true });
      },
    };
  }
  const database = await origin.postgres();
  const settings = postgresSettings(database);
  return {
    settings,
    open: (changes) => open({ ...settings, ...changes }),
    async terminate() {
      const admin = postgres(requiredPostgresUrl().href, { max: 1, onnotice: () => undefined });
      await admin`
        select pg_terminate_backend(pid) from pg_stat_activity
        where datname = ${database.name} and application_name = 'gatepost'`;
      await admin.end();
    },
    async drop() {
      await close();
      await database.drop();
    },
  };
}
