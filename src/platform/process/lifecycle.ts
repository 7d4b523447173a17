/**
 * Start and stop of a process's parts. Owns the order in which they stop, the time they have for it, whether
 * the process is ready for work, and its ending by signal or by a defect. Knows nothing of what the parts do.
 */
import { constants } from "node:os";
import { setTimeout as elapsed } from "node:timers/promises";
import type { Logger } from "pino";

/** What a part has in any case, however much of the grace those before it used up. */
const leastPartMs = 500;
/** One key press can arrive twice: from the terminal, and from a parent that passes it on (`node --watch`). */
const sameSignalMs = 100;
const flushMs = 1000;

/** A part of the process that has to be stopped: a server, a worker, a pool of connections. */
interface Part {
  readonly name: string;
  /** @param graceMs what is left of the grace; afterwards the part is left behind */
  stop(graceMs: number): Promise<void> | void;
}

/** What one part says of itself. Not ready, "starting", until it says otherwise. */
export interface ReadinessHandle {
  ready(): void;
  /** @param reason a few words for an operator: no secret, no address with credentials */
  notReady(reason: string): void;
}

/** A part that is not ready. */
interface Unready {
  readonly name: string;
  readonly reason: string;
}

interface LifecycleSettings {
  readonly logger: Logger;
  /** Seconds that the parts have to stop, together. */
  readonly graceSeconds: number;
  /** Milliseconds of not being ready before parts stop, so that balancers look elsewhere first. None unless given. */
  readonly drainDelayMs?: number;
}

/** The process as the lifecycle sees it; a test brings its own. */
export interface ProcessEvents {
  onSignal(handle: (signal: NodeJS.Signals) => void): void;
  /** Whatever was thrown and nobody caught. */
  onDefect(handle: (thrown: unknown, origin: string) => void): void;
  exit(code: number): void;
}

export interface Lifecycle {
  /** Parts stop in the reverse order of their adding. */
  add(part: Part): void;
  readonly readiness: { register(name: string): ReadinessHandle };
  /** Whether every registered part is ready and the process is not draining. */
  isReady(): boolean;
  /** What keeps the process from being ready; empty if it is. */
  unready(): readonly Unready[];
  /** Called once, as soon as the process is no longer ready and before anything stops. */
  onDrain(callback: () => void): void;
  /**
   * Drains and stops every part. Called again, it is the same stop.
   * @returns whether every part stopped in time and without error
   */
  shutdown(reason: string): Promise<boolean>;
  /**
   * Ends the process properly from now on. First SIGTERM or SIGINT: shutdown, exit 0, or 1 if a part failed
   * to stop. Second: at once, 128 + its number. A defect that nobody caught: logged, exit 1.
   */
  run(events?: ProcessEvents): void;
}

/** A lifecycle without parts yet. */
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
    logger.info({ reason, parts: parts.length }, "stopping");
    for (const callback of drainCallbacks) {
      try {
        callback();
      } catch (error) {
        logger.error({ err: error }, "a drain callback failed");
      }
    }
  }

  async function stopParts(): Promise<boolean> {
    const deadline = performance.now() + graceSeconds * 1000;
    let isClean = true;
    // A part added meanwhile is found here too.
    for (let part = parts.pop(); part; part = parts.pop()) {
      const graceMs = Math.max(leastPartMs, deadline - performance.now());
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
    logger.info("stopped");
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
    run: (events = nodeProcess(logger)) => endWith(events, lifecycle, logger),
  };
  return lifecycle;
}

async function stopPart(logger: Logger, part: Part, graceMs: number): Promise<boolean> {
  const abandoned = new AbortController();
  try {
    const isInTime = await Promise.race([
      Promise.resolve(part.stop(graceMs)).then(() => true),
      // Once the part has stopped, the abort takes the timer away, and its rejection comes too late to matter.
      elapsed(graceMs, false, { signal: abandoned.signal }),
    ]);
    if (!isInTime) logger.error({ part: part.name, graceMs: Math.round(graceMs) }, "did not stop in time");
    return isInTime;
  } catch (error) {
    logger.error({ err: error, part: part.name }, "failed to stop");
    return false;
  } finally {
    abandoned.abort();
  }
}

function endWith(events: ProcessEvents, lifecycle: Lifecycle, logger: Logger): void {
  let firstAt: number | undefined;
  events.onSignal((signal) => {
    if (firstAt === undefined) {
      firstAt = performance.now();
      lifecycle.shutdown(signal).then((isClean) => events.exit(isClean ? 0 : 1));
    } else if (performance.now() - firstAt > sameSignalMs) {
      logger.warn({ signal }, "second signal: ending at once");
      events.exit(128 + constants.signals[signal]);
    }
  });
  events.onDefect((thrown, origin) => {
    try {
      logger.fatal({ err: thrown, origin }, "a defect that nobody caught");
    } finally {
      events.exit(1);
    }
  });
}

/** The one place that touches the process. It exits when the log is written, or a second later. */
function nodeProcess(logger: Logger): ProcessEvents {
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
