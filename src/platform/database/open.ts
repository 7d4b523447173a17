import type { OpenDatabase } from "./database.ts";
import type { Migrations } from "./migrations.ts";
import type { DatabaseSettings } from "./settings.ts";

/**
 * Opens the database as the ordinary user. Opening does not connect: where PostgreSQL is away the process
 * still starts, says that it is not ready, and answers 503 until the database is back. Each driver is loaded
 * only where it is used.
 */
export async function openDatabase(
  settings: DatabaseSettings,
  migrations: Migrations,
): Promise<OpenDatabase> {
  if (settings.kind === "embedded") {
    const { openEmbedded } = await import("./pglite.ts");
    return openEmbedded(settings.dataDir, migrations);
  }
  const { openPostgresql } = await import("./postgresql.ts");
  return openPostgresql(settings, migrations);
}
