/** A worker's process, from its start to its end, as the primary sees it. */
import cluster, { type Worker } from "node:cluster";
import { constants } from "node:os";
import type { Writable } from "node:stream";
import { withTimeout } from "../base/deadlines.ts";
import type { Unready } from "../process/lifecycle.ts";
import { passLines } from "./lines.ts";
import type { FromWorker, ToWorker, WorkerReport } from "./messages.ts";

/** Milliseconds within which a worker's metrics have to come. */
const metricsTimeoutMs = 1_000;

interface WorkerOptions {
  /** Environment beside that of the primary. */
  readonly env: Readonly<Record<string, string>>;
  /** Where its lines go. */
  readonly output: Writable;
  /** Called when it is ready to listen. */
  readonly prepared: (worker: WorkerProcess) => void;
  readonly listening: (worker: WorkerProcess, report: WorkerReport) => void;
}

/** How a worker has ended. */
interface WorkerEnd {
  /** Its exit code, or 128 and the number of the signal that ended it; 1 if its process could not be spawned. */
  readonly code: number;
  /** Why its process could not be spawned. */
  readonly err?: unknown;
}

export class WorkerProcess {
  /** Undefined if Node.js could not even try. */
  readonly #worker: Worker | undefined;
  readonly #scrapes = new Map<number, (text: string) => void>();
  readonly #ended: Promise<WorkerEnd>;
  #scrapeIds = 0;
  warnings: readonly Unready[] = [];
  #unready: readonly Unready[] = [{ name: "process", reason: "starting" }];
  /** When it began to listen, by performance.now(); undefined if it never has. */
  #listeningAt: number | undefined;
  #unansweredLooks = 0;

  constructor({ env, output, prepared, listening }: WorkerOptions) {
    const { promise, resolve } = Promise.withResolvers<WorkerEnd>();
    this.#ended = promise;
    // Why a process cannot be spawned is thrown, or emitted, and then there is no `exit`.
    try {
      this.#worker = cluster.fork(env);
    } catch (err) {
      resolve({ code: 1, err });
      return;
    }
    // Of a process that runs, it is a message that could not be sent, as it ends.
    this.#worker.on("error", (err) => this.pid === undefined && resolve({ code: 1, err }));
    if (this.pid === undefined) return;
    const { stdout } = this.#worker.process;
    const lines = stdout ? passLines(stdout, output) : Promise.resolve();
    const closeDealt = rememberDealt(this.#worker);
    this.#worker.once("exit", async (code: number | null, signal: NodeJS.Signals) => {
      closeDealt();
      // Its last lines are out before it counts as ended.
      await lines;
      resolve({ code: code ?? 128 + constants.signals[signal] });
    });
    this.#worker.on("message", (message: FromWorker) => {
      if (message.type === "prepared") prepared(this);
      else if (message.type === "metrics") this.#scrapes.get(message.id)?.(message.text);
      else if (message.type === "alive") {
        this.#unansweredLooks = 0;
        this.#unready = message.unready;
        this.warnings = message.warnings;
      } else {
        this.#listeningAt = performance.now();
        this.#unready = [];
        listening(this, message.report);
      }
    });
  }

  get pid(): number | undefined {
    return this.#worker?.process.pid;
  }

  get ended(): Promise<WorkerEnd> {
    return this.#ended;
  }

  /** The signal that ended it; null if none has. */
  get signal(): NodeJS.Signals | null {
    return this.#worker?.process.signalCode ?? null;
  }

  /** Milliseconds since it began to listen; undefined if it never has. */
  get listeningMs(): number | undefined {
    return this.#listeningAt === undefined ? undefined : performance.now() - this.#listeningAt;
  }

  /** The parts that are not ready, as it said last. A worker that is ready listens. */
  get unready(): readonly Unready[] {
    if (this.#unready.length > 0 || this.#listeningAt !== undefined) return this.#unready;
    return [{ name: "process", reason: "starting" }];
  }

  tell(message: ToWorker): void {
    if (this.#worker?.isConnected()) this.#worker.send(message);
  }

  /** Asks whether it is there. @returns how many times it was asked before and has not responded */
  look(): number {
    this.tell({ type: "look" });
    return this.#unansweredLooks++;
  }

  /** @returns its metrics; undefined if they have not come within a second */
  async metrics(): Promise<string | undefined> {
    const id = this.#scrapeIds++;
    const { promise, resolve } = Promise.withResolvers<string | undefined>();
    this.#scrapes.set(id, resolve);
    this.tell({ type: "scrape", id });
    const text = await withTimeout(promise, metricsTimeoutMs, () => undefined);
    this.#scrapes.delete(id);
    return text;
  }

  kill(): void {
    this.#worker?.process.kill("SIGKILL");
  }
}

/**
 * The primary closes its handle of a connection when the worker says that it has taken it. One that dies before leaves
 * the handle open in the primary, and its client without an end: Node.js does not close it. So the last handle that was
 * sent to it, of each port, is closed here: there is one on its way at a time, and to close another one changes nothing.
 *
 * @returns closes them
 */
function rememberDealt({ process: child }: Worker): () => void {
  const dealt = new Map<unknown, { close(): void }>();
  const send = child.send.bind(child);
  child.send = (message: unknown, handle?: unknown, ...rest: unknown[]) => {
    if (isHandle(handle)) dealt.set(keyOf(message), handle);
    return Reflect.apply(send, child, [message, handle, ...rest]);
  };
  return () => {
    for (const handle of dealt.values()) handle.close();
  };
}

function isHandle(value: unknown): value is { close(): void } {
  return typeof value === "object" && value !== null && "close" in value && typeof value.close === "function";
}

/** The port that a connection came to, as node:cluster names it. */
function keyOf(message: unknown): unknown {
  return typeof message === "object" && message !== null && "key" in message ? message.key : undefined;
}
