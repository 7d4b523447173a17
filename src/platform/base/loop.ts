/** Work that is repeated in the background, one round at a time, and workers that can be woken when there is some. */
import { untraced } from "./tracing.ts";

/** @returns milliseconds to the next round */
type Round = (stopping: AbortSignal) => Promise<number>;

export interface Loop {
  /** Ends a pause at once and aborts the signal of the round in progress; resolves when that round has ended. */
  stop(): Promise<void>;
}

/** Waits. Ends early, without an error, when the signal is aborted. Does not keep the process alive. */
export function pause(milliseconds: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return Promise.resolve();
  // Without the timer of promises, which makes an error for each signal.
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds).unref();
    signal?.addEventListener("abort", end);
  });
}

/** Runs rounds until the signal is aborted. Rejects with the error that a round throws. */
export async function repeat(stopping: AbortSignal, round: Round, firstAfterMs = 0): Promise<void> {
  for (let pauseMs = firstAfterMs; ; pauseMs = await round(stopping)) {
    if (pauseMs > 0) await pause(pauseMs, stopping);
    if (stopping.aborted) return;
  }
}

/** @param round handles its own errors */
export function startLoop(round: Round, firstAfterMs = 0): Loop {
  const stopping = new AbortController();
  // The caller may be within a span; the rounds are no part of its trace.
  const running = untraced(() => repeat(stopping.signal, round, firstAfterMs));
  return {
    async stop() {
      stopping.abort();
      await running;
    },
  };
}

/** Does work at an interval, first after one. @param onError gets the error of a round; the next runs as usual */
export function every(
  intervalMs: number,
  work: (stopping: AbortSignal) => Promise<unknown>,
  onError: (err: unknown) => void,
): Loop {
  const round: Round = async (stopping) => {
    await work(stopping).catch(onError);
    return intervalMs;
  };
  return startLoop(round, intervalMs);
}

/** Wakes the workers of this process that wait for a kind of work. */
export class WakeUps<Kind extends string> {
  readonly #workers = new Map<Kind, Set<() => void>>();

  /** Has the workers look for work at once. To be called after the transaction that has made the work was committed. */
  wake(...kinds: readonly Kind[]): void {
    for (const kind of kinds) for (const wake of this.#workers.get(kind) ?? []) wake();
  }

  /** @returns removes the worker */
  add(kind: Kind, wake: () => void): () => void {
    const workers = this.#workers.get(kind) ?? new Set();
    this.#workers.set(kind, workers.add(wake));
    return () => void workers.delete(wake);
  }
}

interface WorkerOptions<Kind extends string> {
  readonly wakeUps: WakeUps<Kind>;
  readonly kind: Kind;
  /** Does what there is to do. @returns whether to look again at once; otherwise the worker waits */
  readonly work: (stopping: AbortSignal) => Promise<boolean>;
  /** Receives the error of a round that failed; the next round comes after the usual wait. */
  readonly onError: (err: unknown) => void;
  /** The longest wait, in milliseconds: what other processes have made wakes nobody here. 500 unless given. */
  readonly idleMs?: number;
}

export function startWorker<Kind extends string>(options: WorkerOptions<Kind>): Loop {
  const { wakeUps, kind, work, onError, idleMs = 500 } = options;
  let woken = new AbortController();
  const remove = wakeUps.add(kind, () => woken.abort());
  const loop = startLoop(async (stopping) => {
    // A signal that comes while the worker looks for work counts: it may have looked before the work was there.
    woken = new AbortController();
    const isMore = await work(stopping).catch(onError);
    if (isMore !== true) await pause(idleMs, AbortSignal.any([woken.signal, stopping]));
    return 0;
  });
  return {
    async stop() {
      remove();
      await loop.stop();
    },
  };
}
