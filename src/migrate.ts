/** Brings the database's schema up to date, as the migration user: `npm run migrate`. */
import { authMigrations } from "./auth/service.ts";
import { migrateTask, resolveDatabaseSettings } from "./platform/database-settings.ts";
import { openDatabase } from "./platform/open-database.ts";
import { resolveServerSettings } from "./platform/server-settings.ts";
import { SettingsError, settle } from "./platform/settings.ts";

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
  if (!(error instanceof SettingsError)) throw error;
  process.stderr.write(`${error.message}\n`);
  process.exitCode = 78;
}
