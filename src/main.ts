/** The program, after start.js has configured Node.js: settings, server, signals. */
const { readArguments } = await import("./command.ts");
const usage = `npm start

Starts the services that SERVICES names. It takes no arguments: settings are variables of the environment, listed in
docs/settings.md. Exit code 78: a setting is wrong. Commands beside it, each with -- --help, after npm run:
migrate, keys, revoke-all, hold, watch, demo, fakes`;
readArguments({ usage, options: {} });
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
const { environment, logLevel, workers } = settings.server;
const cluster = workers > 1 ? (await import("node:cluster")).default : undefined;
// Workers are started with these flags, and their primary needs none.
if (!cluster) restartWith(heapFlags(settings.server), process.env);

const logger = createLogger({ level: logLevel, environment });
// In production mode the log is the only output.
const screen = environment === "development" ? await import("./first-screen.ts") : undefined;

if (!cluster?.isWorker) for (const warning of warningsOf(process.env, settings)) logger.warn(warning);

async function start(): Promise<void> {
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
  if (running.lifecycle.isReady()) logReady(running);
}

async function startPrimary(): Promise<void> {
  const primary = await import("./primary.ts");
  await primary.startPrimary(settings, logger, (running) => {
    logger.info({ ports: running.ports }, "Listening");
    logReady(running);
  });
}

async function startWorker(): Promise<void> {
  const { joinPrimary } = await import("./platform/workers/worker.ts");
  const { nodeProcess } = await import("./platform/process/lifecycle.ts");
  const primary = joinPrimary();
  const { startServer } = await import("./server.ts");
  const running = await startServer(settings, logger, undefined, primary);
  running.lifecycle.run({ ...nodeProcess(logger), onSignal: primary.onSignal });
  await running.ready;
}

type Ready = Parameters<typeof import("./first-screen.ts").firstScreen>[0];

function logReady(running: Ready): void {
  if (screen) process.stdout.write(screen.firstScreen(running));
  logger.info({ ports: running.ports, database: running.database }, "Ready");
}

try {
  await (cluster === undefined ? start() : cluster.isPrimary ? startPrimary() : startWorker());
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
