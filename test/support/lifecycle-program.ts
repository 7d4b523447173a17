/**
 * A process with a lifecycle, for tests that send signals to it. Its parts are named in its arguments:
 * "quick" stops at once, "slow" after 300 ms, "stuck" never, "broken" fails to. "throw" and "reject" are
 * defects a moment after the start; "alone" stops by itself, with nothing else to live for, in a minute's
 * grace. It writes JSON lines, "running" when it has begun.
 */

import { createLogger } from "../../src/platform/observability/logger.ts";
import { createLifecycle } from "../../src/platform/process/lifecycle.ts";

const logger = createLogger({ level: "info", environment: "production" });
const isAlone = process.argv.includes("alone");
const lifecycle = createLifecycle({ logger, graceSeconds: isAlone ? 60 : 1, drainDelayMs: 50 });

const behaviours = new Map<string, () => Promise<void> | void>([
  ["quick", () => {}],
  ["slow", () => new Promise<void>((resolve) => setTimeout(resolve, 300))],
  ["stuck", () => new Promise<void>(() => {})],
  ["broken", () => Promise.reject(new Error("cannot stop"))],
]);

for (const name of process.argv.slice(2)) {
  const stop = behaviours.get(name);
  if (stop) {
    lifecycle.add({
      name,
      stop: async () => {
        logger.info({ part: name }, "part stops");
        await stop();
      },
    });
  }
}
lifecycle.onDrain(() => logger.info({ ready: lifecycle.isReady() }, "draining"));
// Something to live for, as a server would be.
if (!isAlone) setInterval(() => {}, 60_000);
if (!isAlone) lifecycle.run();
logger.info("running");
if (isAlone) void lifecycle.shutdown("nothing left to do");
if (process.argv.includes("throw")) {
  setTimeout(() => {
    throw new Error("thrown by nobody in particular");
  }, 20);
}
if (process.argv.includes("reject")) {
  setTimeout(() => void Promise.reject(new Error("rejected by nobody in particular")), 20);
}
