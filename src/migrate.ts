/** Brings the database's schema up to date, as the migration user: `npm run migrate`. */
import { authMigrations } from "./auth/service.ts";
import { migrateTask, resolveDatabaseSettings } from "./platform/database-settings.ts";
import { openDatabase } from "./platform/open-database.ts";
import { resolveServerSettings } from "./platform/server-settings.ts";
import { exitBadSettings, SettingsError, settle } from "./platform/settings.ts";
import { databaseFailure } from "./start-failure.ts";

try {
  const { environment, dataDir } = resolveServerSettings(process.env).value;
  const settings = settle(
    resolveDatabaseSettings(process.env, { environment, dataDir, service: "auth", task: migrateTask }),
  );
  const database = await openDatabase(settings, authMigrations);
  await database.migrate();
  process.stdout.write(`The schema "auth" is up to date in ${database.description}.\n`);
  await database.close();
} catch (error) {
  const reason = error instanceof SettingsError ? error.message : databaseFailure(error);
  if (reason === undefined) throw error;
  process.stderr.write(`${reason}\n`);
  process.exitCode = error instanceof SettingsError ? exitBadSettings : 1;
}
