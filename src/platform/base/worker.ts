/** Workers that look for work again and again, and that can be woken when there is some. */
import { type Loop, pause, startLoop } from "./loop.ts";

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
