/** The program for tests: the whole of it, on real ports, in this process or in one of its own. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { developmentSecrets, developmentSecretsFile } from "../../src/development/secrets.ts";
import { type Clock, systemClock } from "../../src/platform/base/clock.ts";
import { createLogger } from "../../src/platform/observability/logger.ts";
import { startFlags } from "../../src/platform/process/v8-flags.ts";
import { type RunningServer, startServer } from "../../src/server.ts";
import { readSettings, type Settings } from "../../src/services.ts";
import { exercised, type TestDatabase } from "./backends.ts";
import { copyEmbeddedDatabase } from "./embedded-template.ts";
import { createMigratedDatabase } from "./migrated-database.ts";
import { postgresUrl } from "./postgresql/server.ts";
import { root } from "./program.ts";

/** Databases that the suites run on. PostgreSQL is left out where this machine has none; the run says so. */
export const backends: readonly Backend[] = postgresUrl() ? ["PGlite", "PostgreSQL"] : ["PGlite"];
export type Backend = "PGlite" | "PostgreSQL";

export type Environment = Record<string, string>;

/** A server that answers. */
export interface Server {
  /** http://127.0.0.1:port */
  readonly origin: string;
  /** host:port */
  readonly grpc: string;
  readonly management: string;
  /** All of its environment: a server that is started with it again goes on with the same data. */
  readonly env: Environment;
  readonly settings: Settings;
  /** Everything that was logged so far. */
  logs(): string;
  stop(): Promise<void>;
}

/** A server in a process of its own, which can be killed. */
export interface ServerProcess extends Server {
  readonly child: ChildProcess;
  /** kill -9; resolves when it is gone. */
  kill(): Promise<void>;
}

export interface ServerOptions {
  /** Settings beside those of the test: ports, directory and database are seen to. */
  readonly env?: Environment;
}

export interface ServerProcessOptions extends ServerOptions {
  /** The folder of the version to start; this one unless given. */
  readonly version?: string;
}

export interface OwnServerOptions extends ServerOptions {
  readonly clock?: Clock;
  /** False for a server whose database is away. */
  readonly waitUntilReady?: boolean;
}

/** What a server on this PostgreSQL database needs in its environment. */
export function databaseEnvironment(database: TestDatabase): Environment {
  return {
    DB_HOST: database.host,
    DB_PORT: String(database.port),
    DB_NAME: database.name,
    DB_USER: database.user,
    DB_PASSWORD: database.password,
    DB_USER_MIGRATION: database.migrationUser,
    DB_PASSWORD_MIGRATION: database.migrationPassword,
  };
}

let secrets: Buffer | undefined;

/** Making the keys takes longer than most tests: the servers of a test file have the same, unless it says where. */
function putSecrets(file: string): void {
  if (secrets) writeFileSync(file, secrets, { mode: 0o600 });
  else {
    developmentSecrets(dirname(file));
    secrets = readFileSync(file);
  }
}

/** A directory of a test's own, and the environment of a server that keeps its things there, on any free ports. */
async function prepareEnvironment(backend: Backend, env: Environment) {
  await using cleanup = new AsyncDisposableStack();
  const dataDir = env["DATA_DIR"] ?? mkdtempSync(join(tmpdir(), "gatepost-test-"));
  if (env["DATA_DIR"] === undefined) {
    cleanup.defer(() => rmSync(dataDir, { recursive: true, force: true }));
    putSecrets(join(dataDir, developmentSecretsFile));
  }
  const ownDatabase =
    backend === "PostgreSQL" && env["DB_HOST"] === undefined ? await createMigratedDatabase() : undefined;
  if (ownDatabase) cleanup.defer(() => ownDatabase.drop());
  const complete: Environment = {
    LOGGING_LEVEL: "info",
    SERVER_PORT: "0",
    GRPC_PORT: "0",
    MANAGEMENT_PORT: "0",
    DATA_DIR: dataDir,
    ...(ownDatabase && databaseEnvironment(ownDatabase)),
    ...env,
  };
  const settings = await readSettings(complete);
  for (const service of ["auth", "push"] as const) {
    const database = settings[service]?.database;
    if (database?.kind !== "embedded") continue;
    await copyEmbeddedDatabase(database.dataDir);
    exercised("PGlite (embedded)");
  }
  return { env: complete, settings, cleanup: cleanup.move() };
}

/** What a server listens on. */
export type Ports = RunningServer["ports"];

/** A port where nothing listens, and which the system gives to nobody who asks for any free one (IANA: tcpmux). */
export const closedPort = 1;

const addressesOf = ({ http, grpc, management }: Ports) => ({
  origin: `http://127.0.0.1:${http}`,
  grpc: `127.0.0.1:${grpc}`,
  management: `http://127.0.0.1:${management}`,
});

/** Starts the server in this process. */
export async function startOwnServer(backend: Backend, options: OwnServerOptions = {}): Promise<Server> {
  const { env, settings, ...prepared } = await prepareEnvironment(backend, options.env ?? {});
  await using cleanup = prepared.cleanup;
  let logs = "";
  const destination = {
    write(line: string) {
      logs += line;
    },
  };
  const logger = createLogger({ level: settings.server.logLevel, environment: "production", destination });
  const running = await startServer(settings, logger, options.clock ?? systemClock);
  cleanup.defer(async () => {
    await running.lifecycle.shutdown("test is over");
  });
  if (options.waitUntilReady !== false) await running.ready;
  const started = cleanup.move();
  return {
    ...addressesOf(running.ports),
    env,
    settings: running.settings,
    logs: () => logs,
    stop: () => started.disposeAsync(),
  };
}

/** Starts the program (`src/start.js`) in a process of its own and waits until it is ready. */
export async function spawnServer(
  backend: Backend,
  options: ServerProcessOptions = {},
): Promise<ServerProcess> {
  const { env, settings, ...prepared } = await prepareEnvironment(backend, options.env ?? {});
  await using cleanup = prepared.cleanup;
  const main = join(options.version ?? root, "src/start.js");
  // With the flags that it would start itself again with: as a start does, and a tenth of a second sooner.
  const child = spawn(process.execPath, [...startFlags, main], {
    env: { PATH: process.env["PATH"] ?? "", ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let logs = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      logs += text;
    });
  }
  const gone = once(child, "exit");
  cleanup.defer(async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill("SIGTERM");
    await gone;
  });
  const ports = await becomesReady(child, () => logs);
  const started = cleanup.move();
  return {
    ...addressesOf(ports),
    env,
    settings: await settings.listeningOn(ports),
    child,
    logs: () => logs,
    async kill() {
      child.kill("SIGKILL");
      await gone;
    },
    stop: () => started.disposeAsync(),
  };
}

/** The ports that a program's log says it listens on, in either form of the log; undefined as long as it does not. */
export function portsIn(log: string): Ports | undefined {
  const [, ports] =
    /\bListening\b.*"ports":(\{[^}]*\})/.exec(log) ?? /"ports":(\{[^}]*\}).*"Listening"/.exec(log) ?? [];
  return ports === undefined ? undefined : JSON.parse(ports);
}

async function becomesReady(child: ChildProcess, logs: () => string): Promise<Ports> {
  const deadline = Date.now() + 100_000;
  while (Date.now() < deadline) {
    if (child.exitCode !== null) throw new Error(`the server exited with ${child.exitCode}:\n${logs()}`);
    const ports = portsIn(logs());
    const answer =
      ports && (await fetch(`${addressesOf(ports).management}/health/ready`).catch(() => undefined));
    if (ports && answer?.ok) return ports;
    await setTimeout(20);
  }
  throw new Error(`the server is not ready:\n${logs()}`);
}
