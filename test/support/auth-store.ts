/**
 * What servers of one deployment share: a database, keys and an issuer; and a look into the database that no
 * code of the product has a part in.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PGlite } from "@electric-sql/pglite";
import postgres from "postgres";
import { createMigratedDatabase } from "./migrated-database.ts";
import { requiredPostgresUrl } from "./postgresql/server.ts";
import { type Backend, databaseEnvironment } from "./servers.ts";

/** Runs a statement as the database's superuser; every value is as the driver has it. */
export type Query = (statement: string) => Promise<Record<string, unknown>[]>;

export interface AuthStore {
  /** Environment of each server that shares it. */
  readonly env: Record<string, string>;
  /** Connects for as long as `work` takes. An embedded database can be read only while no server has it open. */
  read<T>(work: (query: Query) => Promise<T>): Promise<T>;
  /** Removes it. The servers must have stopped. */
  drop(): Promise<void>;
}

export async function createAuthStore(backend: Backend): Promise<AuthStore> {
  const dataDir = mkdtempSync(join(tmpdir(), "gatepost-test-"));
  const env = { DATA_DIR: dataDir, OAUTH_SERVER_ISSUER: "http://127.0.0.1/api/auth" };
  const removeDirectory = () => rmSync(dataDir, { recursive: true, force: true });
  if (backend === "PGlite") {
    return {
      env,
      async read(work) {
        const database = await PGlite.create({ dataDir: join(dataDir, "database") });
        try {
          return await work(
            async (statement) => (await database.query<Record<string, unknown>>(statement)).rows,
          );
        } finally {
          await database.close();
        }
      },
      drop: async () => removeDirectory(),
    };
  }
  const database = await createMigratedDatabase();
  const url = requiredPostgresUrl();
  url.pathname = `/${database.name}`;
  return {
    env: { ...env, ...databaseEnvironment(database) },
    async read(work) {
      const sql = postgres(url.href, { max: 1, onnotice: () => undefined });
      try {
        return await work(async (statement) => [...(await sql.unsafe(statement))]);
      } finally {
        await sql.end({ timeout: 1 });
      }
    },
    async drop() {
      await database.drop();
      removeDirectory();
    },
  };
}

/** Every table that is not PostgreSQL's own, as `schema.table`. */
async function tables(query: Query): Promise<string[]> {
  const found = await query(`
    select format('%I.%I', schemaname, tablename) as name from pg_tables
    where schemaname not in ('pg_catalog', 'information_schema') order by 1`);
  return found.map(({ name }) => String(name));
}

/** How many rows each table has. */
export async function rowCounts(query: Query): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const table of await tables(query)) {
    const [row] = await query(`select count(*)::int as rows from ${table}`);
    counts[table] = Number(row?.["rows"]);
  }
  return counts;
}

/** Every row of every table as text, as a dump has it: bytes in hexadecimal, JSON as it is written. */
export async function dump(query: Query): Promise<string> {
  const lines: string[] = [];
  for (const table of await tables(query)) {
    const found = await query(`select entry::text as line from ${table} as entry`);
    lines.push(table, ...found.map(({ line }) => String(line)));
  }
  return lines.join("\n");
}
