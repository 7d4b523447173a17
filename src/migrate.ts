/** Brings the databases' schemas up to date, as the migration user: `npm run migrate`. */
import { readArguments, runCommand } from "./command.ts";
import { Reminders } from "./platform/base/reminders.ts";
import { type Migrations, migrateWithRetries } from "./platform/database/migrations/migrations.ts";
import { openDatabase } from "./platform/database/open.ts";
import { type DatabaseSettings, migrateTask, resolveDatabaseSettings } from "./platform/database/settings.ts";
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

/** The exit code of `--status` where migrations would be run. */
const exitPending = 3;

const usage = `npm run migrate [-- --status]

Brings the databases of the services (SERVICES) up to date, as the migration user (DB_USER_MIGRATION).

  --status  changes nothing: names the migrations that have been run, and those that would be

Exit codes: 0 up to date; ${exitPending} with --status: migrations would be run; 1 the database cannot be used, or has
another history; 2 unknown arguments; 78 wrong settings.`;

const { values: asked } = readArguments({ usage, options: { status: { type: "boolean" } } });

async function showStatus(service: ServiceName, settings: DatabaseSettings, migrations: Migrations) {
  const database = await openDatabase(settings, migrations);
  const states = await database.migrationStates().finally(() => database.close());
  const lines = states.map(
    ({ name, isRun }) => `${service}/${name}: ${isRun ? "has been run" : "would be run"}\n`,
  );
  process.stdout.write(lines.join(""));
  if (!states.every(({ isRun }) => isRun)) process.exitCode = exitPending;
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
    const migrations = await migrationsOf[service]();
    if (asked.status) {
      await showStatus(service, valueOrThrow(reading), migrations);
      continue;
    }
    const database = await openDatabase(valueOrThrow(reading), migrations);
    await migrateWithRetries(database, {
      retryForMs: retryMinutes * 60_000,
      blocked: ({ message }) => report(`${message} Trying again for up to ${retryMinutes} minutes.`),
      report,
    });
    process.stdout.write(`The schema "${service}" is up to date in ${database.description}.\n`);
    await database.close();
  }
});
