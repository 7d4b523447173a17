/** Brings the databases' schemas up to date, as the migration user: `npm run migrate`. */
import { runCommand } from "./command.ts";
import { Reminders } from "./platform/base/reminders.ts";
import { type Migrations, migrateWithRetries } from "./platform/database/migrations.ts";
import { openDatabase } from "./platform/database/open.ts";
import { migrateTask, resolveDatabaseSettings } from "./platform/database/settings.ts";
import { resolveServerSettings } from "./platform/settings/server.ts";
import { joinReadings, valueOrThrow } from "./platform/settings/settings.ts";
import { resolveServices, type ServiceName } from "./services.ts";

const migrationsOf: Readonly<Record<ServiceName, () => Promise<Migrations>>> = {
  auth: async () => (await import("./auth/service.ts")).authMigrations,
  push: async () => (await import("./push/database.ts")).pushMigrations,
};

/** How long another session may have locked a table before this gives up. */
const retryMinutes = 10;
const reminders = new Reminders();
function report(message: string): void {
  if (reminders.isDue(message)) process.stderr.write(`${message}\n`);
}

await runCommand(async () => {
  const { environment, dataDir } = resolveServerSettings(process.env).value;
  const services = valueOrThrow(resolveServices(process.env, { environment }));
  const settings = joinReadings(
    Object.fromEntries(
      services.map((service) => [
        service,
        resolveDatabaseSettings(process.env, { environment, dataDir, service, task: migrateTask }),
      ]),
    ),
  );
  for (const service of services) {
    const ofService = settings[service];
    if (!ofService) continue;
    const database = await openDatabase(ofService, await migrationsOf[service]());
    await migrateWithRetries(database, {
      retryForMs: retryMinutes * 60_000,
      blocked: ({ message }) => report(`${message} Trying again for up to ${retryMinutes} minutes.`),
      report,
    });
    process.stdout.write(`The schema "${service}" is up to date in ${database.description}.\n`);
    await database.close();
  }
});
