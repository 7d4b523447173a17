/** Work that is done again and again in the background: one round at a time, with a pause between two. */
import { setTimeout } from "node:timers/promises";

/** @returns milliseconds to the next round */
type Round = (stopping: AbortSignal) => Promise<number>;

/** What runs until it is stopped. */
export interface Loop {
  /** Ends a pause at once; resolves when the round in progress, which is told by its signal, has ended. */
  stop(): Promise<void>;
}

/** Ends early, without an error, when the signal is aborted. Does not keep the process alive. */
export async function pause(milliseconds: number, signal?: AbortSignal): Promise<void> {
  await setTimeout(milliseconds, undefined, { ref: false, ...(signal && { signal }) }).catch(() => undefined);
}

/** Does rounds until the signal is aborted. Rejects with what a round throws. */
export async function repeat(stopping: AbortSignal, round: Round, firstAfterMs = 0): Promise<void> {
  for (let pauseMs = firstAfterMs; ; pauseMs = await round(stopping)) {
    if (pauseMs > 0) await pause(pauseMs, stopping);
    if (stopping.aborted) return;
  }
}

/** @param round that handles its own errors */
export function startLoop(round: Round, firstAfterMs = 0): Loop {
  const stopping = new AbortController();
  const running = repeat(stopping.signal, round, firstAfterMs);
  return {
    async stop() {
      stopping.abort();
      await running;
    },
  };
}

/** Does work at an interval, for the first time after one. @param failed is told of a round that did; the next comes as ever */
export function every(
  intervalMs: number,
  work: (stopping: AbortSignal) => Promise<unknown>,
  failed: (err: unknown) => void,
): Loop {
  const round: Round = async (stopping) => {
    await work(stopping).catch(failed);
    return intervalMs;
  };
  return startLoop(round, intervalMs);
}
