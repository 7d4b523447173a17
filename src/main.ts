/** The program, after start.js has configured Node.js: settings, server, signals. */
const { resolveDrizzleDirectly } = await import("./platform/database/drizzle-resolution.ts");
resolveDrizzleDirectly();
const { exitBadSettings, SettingsError } = await import("./platform/settings/settings.ts");
const { readSettings } = await import("./services.ts");
const { warningsOf } = await import("./setting-warnings.ts");
const { heapFlags, restartWith } = await import("./platform/process/v8-flags.ts");
const { createLogger } = await import("./platform/observability/logger.ts");
const { beginEmbedded } = await import("./platform/database/embedded-client.ts");
const { startFailure } = await import("./start-failure.ts");

async function settingsOrExit() {
  try {
    return await readSettings(process.env);
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    process.stderr.write(`${error.message}\n`);
    process.exit(exitBadSettings);
  }
}

const settings = await settingsOrExit();
restartWith(heapFlags(settings.server), process.env);

const { environment, logLevel } = settings.server;
const logger = createLogger({ level: logLevel, environment });
for (const warning of warningsOf(process.env, settings)) logger.warn(warning);
// In production mode the log is the only output.
const screen = environment === "development" ? await import("./first-screen.ts") : undefined;
try {
  if (screen) process.stdout.write(screen.creationNotice(settings));
  // To create it takes seconds, in which the rest is loaded.
  for (const service of [settings.auth, settings.push]) {
    if (service?.database.kind === "embedded") beginEmbedded(service.database.dataDir);
  }
  const { startServer } = await import("./server.ts");
  const running = await startServer(settings, logger);
  logger.info({ ports: running.ports }, "Listening");
  running.lifecycle.run();
  await running.ready;
  if (running.lifecycle.isReady()) {
    if (screen) process.stdout.write(screen.firstScreen(running));
    logger.info({ ports: running.ports, database: running.database }, "Ready");
  }
} catch (error) {
  if (error instanceof SettingsError) {
    process.stderr.write(`${error.message}\n`);
    process.exit(exitBadSettings);
  }
  const reason = startFailure(error, settings);
  if (reason === undefined) logger.fatal({ err: error }, "The server could not start");
  else logger.fatal(reason);
  process.exit(1);
}
