/** Start and stop of a process's parts: order, time, readiness, and the exit by a signal or a defect. */
import { constants } from "node:os";
import { setTimeout as elapsed } from "node:timers/promises";
import type { Logger } from "pino";

/** Milliseconds that a part has at least, even if earlier parts have used up the grace. */
const minPartGraceMs = 500;
/** One key press can arrive twice: from the terminal, and from a parent that passes it on (`node --watch`). */
const sameSignalMs = 100;
const flushMs = 1000;

/** A part of the process that has to be stopped: a server, a worker, a pool of connections. */
interface Part {
  readonly name: string;
  /** @param graceMs the remaining grace; afterwards the part is abandoned */
  stop(graceMs: number): Promise<void> | void;
}

/** The readiness of one part, which the part sets itself. At first it is not ready: "starting". */
export interface ReadinessHandle {
  ready(): void;
  /** @param reason a few words for an operator: no secret, no address with credentials */
  notReady(reason: string): void;
}

export interface Unready {
  readonly name: string;
  readonly reason: string;
}

interface LifecycleSettings {
  readonly logger: Logger;
  /** Seconds that the parts have to stop, together. */
  readonly graceSeconds: number;
  /** Milliseconds for which the process is not ready before parts stop, for load balancers. 0 unless given. */
  readonly drainDelayMs?: number;
}

/** The events of the process, and its exit. A test passes its own. */
export interface ProcessEvents {
  onSignal(handle: (signal: NodeJS.Signals) => void): void;
  /** Anything that was thrown and not caught. */
  onDefect(handle: (thrown: unknown, origin: string) => void): void;
  exit(code: number): void;
}

export interface Lifecycle {
  /** Parts stop in the reverse order of their adding. */
  add(part: Part): void;
  readonly readiness: { register(name: string): ReadinessHandle };
  /** Whether every registered part is ready and the process is not draining. */
  isReady(): boolean;
  /** The parts that are not ready; empty if the process is ready. */
  unready(): readonly Unready[];
  /** Called once, as soon as the process is no longer ready and before anything stops. */
  onDrain(callback: () => void): void;
  /** Drains and stops every part, once. @returns whether every part stopped in time and without error */
  shutdown(reason: string): Promise<boolean>;
  /** Handles signals and defects. First SIGTERM or SIGINT: shutdown, exit 0 or 1; second: 128 + its number, at once. */
  run(events?: ProcessEvents): void;
}

export function createLifecycle(settings: LifecycleSettings): Lifecycle {
  const { logger, graceSeconds, drainDelayMs = 0 } = settings;
  const parts: Part[] = [];
  /** Every registered part, and why it is not ready if it is not. */
  const readiness = new Map<string, string | undefined>();
  const drainCallbacks: (() => void)[] = [];
  let stopping: Promise<boolean> | undefined;

  function unready(): Unready[] {
    const list: Unready[] = stopping ? [{ name: "process", reason: "draining" }] : [];
    for (const [name, reason] of readiness) if (reason !== undefined) list.push({ name, reason });
    return list;
  }

  function drain(reason: string): void {
    logger.info({ reason, parts: parts.length }, "Stopping");
    for (const callback of drainCallbacks) {
      try {
        callback();
      } catch (error) {
        logger.error({ err: error }, "A drain callback failed");
      }
    }
  }

  async function stopParts(): Promise<boolean> {
    const deadline = performance.now() + graceSeconds * 1000;
    let isClean = true;
    // The loop also stops a part that was added meanwhile.
    for (let part = parts.pop(); part; part = parts.pop()) {
      const graceMs = Math.max(minPartGraceMs, deadline - performance.now());
      isClean = (await stopPart(logger, part, graceMs)) && isClean;
    }
    return isClean;
  }

  async function shutdown(reason: string): Promise<boolean> {
    // Not ready before the first callback runs.
    const isClean = Promise.withResolvers<boolean>();
    stopping = isClean.promise;
    drain(reason);
    if (drainDelayMs > 0) await elapsed(drainDelayMs);
    isClean.resolve(await stopParts());
    logger.info("Stopped");
    return isClean.promise;
  }

  const lifecycle: Lifecycle = {
    add: (part) => void parts.push(part),
    readiness: {
      register(name) {
        if (readiness.has(name)) throw new Error(`Readiness of ${name} is registered twice.`);
        readiness.set(name, "starting");
        return {
          ready: () => void readiness.set(name, undefined),
          notReady: (reason) => void readiness.set(name, reason),
        };
      },
    },
    isReady: () => unready().length === 0,
    unready,
    onDrain: (callback) => void drainCallbacks.push(callback),
    shutdown: (reason) => stopping ?? shutdown(reason),
    run: (events = nodeProcess(logger)) => handleProcessEvents(events, lifecycle, logger),
  };
  return lifecycle;
}

async function stopPart(logger: Logger, part: Part, graceMs: number): Promise<boolean> {
  const abandoned = new AbortController();
  try {
    const hasFinished = await Promise.race([
      Promise.resolve(part.stop(graceMs)).then(() => true),
      // This timer keeps the process alive, unlike that of `withTimeout`, as a part may wait for what does not.
      elapsed(graceMs, false, { signal: abandoned.signal }),
    ]);
    if (!hasFinished)
      logger.error({ part: part.name, graceMs: Math.round(graceMs) }, "A part did not stop in time");
    return hasFinished;
  } catch (error) {
    logger.error({ err: error, part: part.name }, "A part failed to stop");
    return false;
  } finally {
    abandoned.abort();
  }
}

function handleProcessEvents(events: ProcessEvents, lifecycle: Lifecycle, logger: Logger): void {
  let firstAt: number | undefined;
  events.onSignal((signal) => {
    if (firstAt === undefined) {
      firstAt = performance.now();
      lifecycle.shutdown(signal).then((isClean) => events.exit(isClean ? 0 : 1));
    } else if (performance.now() - firstAt > sameSignalMs) {
      logger.warn({ signal }, "A second signal ends the process at once");
      events.exit(128 + constants.signals[signal]);
    }
  });
  events.onDefect((thrown, origin) => {
    try {
      logger.fatal({ err: thrown, origin }, "An uncaught exception ends the process");
    } finally {
      events.exit(1);
    }
  });
}

/** The events of Node's process. It exits when the log is flushed, or after a second. */
export function nodeProcess(logger: Logger): ProcessEvents {
  return {
    onSignal(handle) {
      process.on("SIGTERM", handle);
      process.on("SIGINT", handle);
    },
    // Node reports an unhandled rejection here too, with its origin.
    onDefect: (handle) => void process.on("uncaughtException", handle),
    exit(code) {
      setTimeout(() => process.exit(code), flushMs);
      logger.flush(() => process.exit(code));
    },
  };
}
