/**
 * Worker processes that share their ports, by node:cluster. One that ends is started again, one that is silent is
 * killed; one that cannot start, after some attempts, is the end of the program.
 */
import cluster from "node:cluster";
import type { Writable } from "node:stream";
import type { Logger } from "pino";
import { pause } from "../base/loop.ts";
import type { Unready } from "../process/lifecycle.ts";
import type { WorkerReport } from "./messages.ts";
import { joinMetrics } from "./metrics.ts";
import { WorkerProcess } from "./worker-process.ts";

/** Milliseconds between two looks at a worker. */
const lookIntervalMs = 1_000;
/** Milliseconds before a worker is started again: first, and after many times in a row. */
const firstPauseMs = 100;
const longestPauseMs = 10_000;
/** Milliseconds after which a worker that listens is taken for sound: the next pause is the first. */
const soundAfterMs = 60_000;
/** Workers that may end one after the other before they have listened, while no other listens. */
const maxFailedStarts = 5;

interface WorkersOptions {
  readonly count: number;
  readonly logger: Logger;
  /** Where the lines of workers go. */
  readonly output: Writable;
  /** Flags of V8 and Node.js for the workers. */
  readonly execArgv: readonly string[];
  /** Environment of workers beside that of the primary. */
  readonly env: Readonly<Record<string, string>>;
  /** The exit code after which no start would succeed. */
  readonly finalCode: number;
  /** Called when a worker is about to listen; it does once this has resolved. */
  readonly beforeListening: () => Promise<void>;
  /** Called when the first worker listens. */
  readonly ready: (report: WorkerReport) => void;
  /** Called when workers cannot start. @param code the exit code of the last one */
  readonly failed: (code: number) => void;
  /** How many seconds a worker may be silent; 30 unless given. */
  readonly silentSeconds?: number;
}

export class Workers {
  readonly #options: WorkersOptions;
  readonly #logger: Logger;
  /** Those that run, by their places, from 1. */
  readonly #running = new Map<number, WorkerProcess>();
  readonly #stopping = new AbortController();
  #failedStarts = 0;
  #isReported = false;
  #kept: Promise<unknown> = Promise.resolve();

  constructor(options: WorkersOptions) {
    this.#options = options;
    this.#logger = options.logger;
  }

  start(): void {
    const { count, execArgv } = this.#options;
    // Not left to NODE_CLUSTER_SCHED_POLICY: without round-robin most connections are one worker's.
    cluster.schedulingPolicy = cluster.SCHED_RR;
    cluster.setupPrimary({ execArgv: [...execArgv], stdio: ["ignore", "pipe", "inherit", "ipc"] });
    // More than this many may wait for the output at a time.
    this.#options.output.setMaxListeners(0);
    const places = Array.from({ length: count }, (_, index) => index + 1);
    const looking = setInterval(() => this.#look(), lookIntervalMs);
    this.#kept = Promise.all(places.map((place) => this.#keep(place))).finally(() => clearInterval(looking));
  }

  /** The parts of workers that are not ready; empty as long as one worker is ready. */
  unready(): readonly Unready[] {
    const workers = [...this.#running];
    if (workers.some(([, { unready }]) => unready.length === 0)) return [];
    if (workers.length === 0) return [{ name: "workers", reason: "starting" }];
    return workers.flatMap(([place, { unready }]) => ofWorker(place, unready));
  }

  /** What the workers cannot do, though they are ready. */
  warnings(): readonly Unready[] {
    return [...this.#running].flatMap(([place, { warnings }]) => ofWorker(place, warnings));
  }

  /** The metrics of all workers that respond within a second, each with the label `worker`, its place. */
  async metrics(): Promise<string> {
    const texts = await Promise.all(
      [...this.#running].map(async ([place, worker]) => [place, await worker.metrics()] as const),
    );
    return joinMetrics(
      new Map(texts.flatMap(([place, text]) => (text === undefined ? [] : [[place, text]]))),
    );
  }

  /** Has all of them drain and end, and starts none again. */
  stop(signal: NodeJS.Signals): void {
    this.#stopping.abort();
    for (const worker of this.#running.values()) worker.tell({ type: "stop", signal });
  }

  /** Resolves when all have ended after {@link stop}. */
  async ended(): Promise<void> {
    await this.#kept;
  }

  kill(): void {
    for (const worker of this.#running.values()) worker.kill();
  }

  /** Starts the worker of a place again and again. */
  async #keep(place: number): Promise<void> {
    let pauseMs = firstPauseMs;
    while (!this.#stopping.signal.aborted) {
      const worker = this.#begin(place);
      const { code, err } = await worker.ended;
      this.#running.delete(place);
      if (this.#stopping.signal.aborted) return;
      const { listeningMs } = worker;
      if (listeningMs === undefined && this.#hasFailed(code, err)) return;
      if (listeningMs !== undefined && listeningMs > soundAfterMs) pauseMs = firstPauseMs;
      this.#logger.error(
        { worker: place, workerPid: worker.pid, exitCode: code, signal: worker.signal, err, pauseMs },
        "A worker has ended, and is started again",
      );
      await pause(pauseMs, this.#stopping.signal);
      pauseMs = Math.min(2 * pauseMs, longestPauseMs);
    }
  }

  #begin(place: number): WorkerProcess {
    const { env, output } = this.#options;
    const worker = new WorkerProcess({
      env,
      output,
      prepared: (self) => {
        this.#options.beforeListening().then(
          () => self.tell({ type: "listen" }),
          () => self.kill(),
        );
      },
      listening: ({ pid }, report) => {
        this.#failedStarts = 0;
        this.#logger.info({ worker: place, workerPid: pid }, "A worker listens");
        if (!this.#isReported) this.#options.ready(report);
        this.#isReported = true;
      },
    });
    this.#running.set(place, worker);
    return worker;
  }

  /** @returns whether that was the end of all */
  #hasFailed(code: number, err: unknown): boolean {
    const isAlone = [...this.#running.values()].every(({ listeningMs }) => listeningMs === undefined);
    this.#failedStarts = isAlone ? this.#failedStarts + 1 : 0;
    if (code !== this.#options.finalCode && this.#failedStarts < maxFailedStarts) return false;
    this.#logger.fatal({ exitCode: code, err }, "Workers cannot start");
    this.#options.failed(code);
    return true;
  }

  /** Counts looks, not time: after a pause of the whole machine or of this process, nobody was silent. */
  #look(): void {
    const { silentSeconds = 30 } = this.#options;
    for (const [place, worker] of this.#running) {
      const seconds = worker.look();
      if (seconds < silentSeconds) continue;
      this.#logger.error({ worker: place, seconds }, "A worker is silent, and is killed");
      worker.kill();
    }
  }
}

function ofWorker(place: number, parts: readonly Unready[]): Unready[] {
  return parts.map(({ name, reason }) => ({ name: `worker ${place}: ${name}`, reason }));
}
