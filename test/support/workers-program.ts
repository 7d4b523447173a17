/**
 * A primary whose workers serve HTTP, for tests that end, stop and kill them. Its settings are in the environment:
 * PORT, COUNT, SILENT_SECONDS, and DIE, an exit code with which each worker, or each from the DIE_FROMth start on, ends
 * instead of becoming ready. A response is the worker's process id; /hang gets none, /drain one after the worker was
 * told to stop, /block keeps the worker busy for ever, and /write makes it write 500 long lines. The primary writes
 * JSON lines, "ready" when a worker listens; its first SIGUSR2 makes spawning fail later, by an event, its second at
 * once, and its third makes it work again.
 */
import cluster from "node:cluster";
import { createServer } from "node:http";
import { createLogger } from "../../src/platform/observability/logger.ts";
import { nodeProcess } from "../../src/platform/process/lifecycle.ts";
import { joinPrimary } from "../../src/platform/workers/worker.ts";
import { Workers } from "../../src/platform/workers/workers.ts";

const { PORT, COUNT = "2", SILENT_SECONDS, DIE, DIE_FROM = "1" } = process.env;
const logger = createLogger({ level: "info", environment: "production" });

function beginPrimary(): void {
  const { exit, onSignal } = nodeProcess(logger);
  const end = (code: number) => workers.ended().then(() => exit(code));
  const workers = new Workers({
    count: Number(COUNT),
    logger,
    output: process.stdout,
    execArgv: process.execArgv,
    env: {},
    finalCode: 78,
    beforeListening: async () => undefined,
    ready: ({ database }) => logger.info({ database }, "ready"),
    failed: (code) => {
      workers.stop("SIGTERM");
      void end(code);
    },
    ...(SILENT_SECONDS !== undefined && { silentSeconds: Number(SILENT_SECONDS) }),
  });
  onSignal((signal) => {
    workers.stop(signal);
    void end(0);
  });
  const programs = ["/nowhere", "\0", process.execPath];
  process.on("SIGUSR2", () => {
    process.execPath = programs.shift() ?? "";
  });
  process.once("exit", () => workers.kill());
  workers.start();
}

async function beginWorker(): Promise<void> {
  const primary = joinPrimary();
  if (DIE !== undefined && (cluster.worker?.id ?? 0) >= Number(DIE_FROM)) process.exit(Number(DIE));
  const waiting: (() => void)[] = [];
  const server = createServer(async ({ url }, response) => {
    if (url === "/hang") return;
    if (url === "/drain") await new Promise<void>((resolve) => waiting.push(resolve));
    if (url === "/block") for (;;);
    if (url === "/write")
      for (let line = 0; line < 500; line += 1)
        process.stdout.write(`${JSON.stringify({ long: "x".repeat(9_000) })}\n`);
    response.end(String(process.pid));
  });
  primary.shows({
    unready: () => [],
    warnings: () => [],
    metrics: async () => `# HELP a A.\n# TYPE a counter\na 1\na_b{c="d"} 2\n`,
  });
  primary.onSignal((signal) => {
    logger.info({ signal }, "told to stop");
    for (const go of waiting) go();
    server.close(() => process.exit(0));
    server.closeIdleConnections();
  });
  await primary.mayListen();
  server.listen(Number(PORT), "127.0.0.1", () => primary.listens({ database: "none" }));
}

if (cluster.isPrimary) beginPrimary();
else await beginWorker();
