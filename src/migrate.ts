/** Brings the databases' schemas up to date, as the migration user: `npm run migrate`. */
import { runCommand } from "./command.ts";
import { Reminders } from "./platform/base/reminders.ts";
import { type Migrations, migrateWithRetries } from "./platform/database/migrations/migrations.ts";
import { openDatabase } from "./platform/database/open.ts";
import { migrateTask, resolveDatabaseSettings } from "./platform/database/settings.ts";
import { resolveCommandSettings } from "./platform/settings/server.ts";
import { joinReadings, valueOrThrow } from "./platform/settings/settings.ts";
import { resolveServices, type ServiceName } from "./services.ts";

const migrationsOf: Readonly<Record<ServiceName, () => Promise<Migrations>>> = {
  auth: async () => (await import("./auth/service.ts")).authMigrations,
  push: async () => (await import("./push/database.ts")).pushMigrations,
};

/** Minutes for which another session may have locked a table before the migration gives up. */
const retryMinutes = 10;
const reminders = new Reminders();
function report(message: string): void {
  if (reminders.isDue(message)) process.stderr.write(`${message}\n`);
}

await runCommand(async () => {
  const command = resolveCommandSettings(process.env);
  const { environment, dataDir } = command.value;
  const services = resolveServices(process.env, { environment });
  const databases = (services.value ?? []).map((service) => ({
    service,
    reading: resolveDatabaseSettings(process.env, { environment, dataDir, service, task: migrateTask }),
  }));
  const readings = databases.map(({ service, reading }) => [service, reading] as const);
  joinReadings({ command, services, ...Object.fromEntries(readings) });
  for (const { service, reading } of databases) {
    const database = await openDatabase(valueOrThrow(reading), await migrationsOf[service]());
    await migrateWithRetries(database, {
      retryForMs: retryMinutes * 60_000,
      blocked: ({ message }) => report(`${message} Trying again for up to ${retryMinutes} minutes.`),
      report,
    });
    process.stdout.write(`The schema "${service}" is up to date in ${database.description}.\n`);
    await database.close();
  }
});
