import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/pglite";
import { isReachable, type OpenDatabase } from "./database.ts";
import { beginEmbedded } from "./embedded-client.ts";
import { isMigrated, type Migrations, migrationStates } from "./migrations/migrations.ts";
import { runMigrations } from "./migrations/run-migrations.ts";

/**
 * Opens the embedded database in this directory, for this process; all who open it share its one connection.
 * @throws DirectoryInUseError
 */
export async function openEmbedded(dataDir: string, migrations: Migrations): Promise<OpenDatabase> {
  const shared = beginEmbedded(dataDir);
  shared.users += 1;
  const client = await shared.client;
  const db = drizzle({ client });
  const startAnew = `delete ${dataDir}, and start again`;
  return {
    db,
    // There is one connection, and one statement at a time.
    reads: db,
    leases: db,
    standbys: undefined,
    // It has no standbys.
    confirm: async () => undefined,
    description: `embedded PostgreSQL in ${dataDir}`,
    migrate: (report) => runMigrations(db, migrations, startAnew, report),
    isMigrated: () => isMigrated(db, migrations, startAnew),
    migrationStates: () => migrationStates(db, migrations, startAnew),
    // Its only user is a superuser, and is never used in production.
    requireOrdinaryUser: async () => undefined,
    isReachable: () => isReachable(() => db.execute(sql`select 1`).then(() => true)),
    close: () => shared.leave(),
  };
}
