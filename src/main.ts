/** The program: settings, server, signals. The only file with side effects of its own. */
import { enableCompileCache } from "node:module";
import { setFlagsFromString } from "node:v8";

enableCompileCache();
const { joinReadings, SettingsError } = await import("./platform/settings.ts");
const { resolveServerSettings } = await import("./platform/server-settings.ts");
const { resolveAuthSettings } = await import("./auth/settings.ts");
const { createLogger } = await import("./platform/telemetry.ts");
const { startServer } = await import("./server.ts");
const { firstScreen } = await import("./first-screen.ts");

/** EX_CONFIG of sysexits.h. */
const exitBadSettings = 78;

async function settingsOrExit() {
  try {
    const server = resolveServerSettings(process.env);
    return joinReadings({ server, auth: await resolveAuthSettings(process.env, server.value) });
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    process.stderr.write(`${error.message}\n`);
    process.exit(exitBadSettings);
  }
}

const settings = await settingsOrExit();
const { memoryMaxMb, memoryMinMb, environment, logLevel } = settings.server;
if (memoryMaxMb !== undefined) setFlagsFromString(`--max-old-space-size=${memoryMaxMb}`);
if (memoryMinMb !== undefined) setFlagsFromString(`--initial-old-space-size=${memoryMinMb}`);

const logger = createLogger({ level: logLevel, environment });
try {
  const running = await startServer(settings, logger);
  running.lifecycle.run();
  await running.ready;
  if (environment === "development") process.stdout.write(firstScreen(settings, running));
  logger.info({ ports: running.ports, database: running.database }, "ready");
} catch (error) {
  const inUse = error instanceof Error && "code" in error && error.code === "EADDRINUSE";
  if (inUse && "port" in error) {
    logger.fatal(
      `Port ${error.port} is in use. Stop what listens there, or set SERVER_PORT, GRPC_PORT or MANAGEMENT_PORT.`,
    );
  } else logger.fatal({ err: error }, "the server could not start");
  process.exit(1);
}
