import type { Logger } from "pino";
import type { DatabaseObserver } from "../base/observers.ts";
import type { OpenDatabase, OpenOptions } from "./database.ts";
import type { Migrations } from "./migrations/migrations.ts";
import type { DatabaseSettings } from "./settings.ts";

/** Observes nothing. */
const nobody: DatabaseObserver = { lane() {}, waited() {}, connectFailed() {} };

/**
 * Opens the database as the ordinary user. Opening does not connect: if PostgreSQL is unavailable, the process
 * still starts, is not ready, and responds with 503 until the database is back. A driver is loaded only if it
 * is used.
 * @param logger receives what is found out about several hosts
 */
export async function openDatabase(
  settings: DatabaseSettings,
  migrations: Migrations,
  observer: DatabaseObserver = nobody,
  logger?: Logger,
  options: OpenOptions = {},
): Promise<OpenDatabase> {
  if (settings.kind === "embedded") {
    const { openEmbedded } = await import("./pglite.ts");
    return openEmbedded(settings.dataDir, migrations);
  }
  const { openPostgresql } = await import("./postgresql.ts");
  return openPostgresql(settings, migrations, observer, logger, options);
}
