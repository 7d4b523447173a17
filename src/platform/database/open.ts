import type { Logger } from "pino";
import type { DatabaseObserver } from "../base/observers.ts";
import type { OpenDatabase, OpenOptions } from "./database.ts";
import type { Migrations } from "./migrations/migrations.ts";
import type { DatabaseSettings } from "./settings.ts";

const nobody: DatabaseObserver = { lane() {}, waited() {}, connectFailed() {} };

/**
 * Opens the database as the ordinary user, without connecting: a process starts, unready, while PostgreSQL is away.
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
