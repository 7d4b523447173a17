/** Work that is repeated in the background: one round at a time, with a pause between two. */
import { setTimeout } from "node:timers/promises";
import { untraced } from "./tracing.ts";

/** @returns milliseconds to the next round */
type Round = (stopping: AbortSignal) => Promise<number>;

export interface Loop {
  /** Ends a pause at once and aborts the signal of the round in progress; resolves when that round has ended. */
  stop(): Promise<void>;
}

/** Waits. Ends early, without an error, when the signal is aborted. Does not keep the process alive. */
export async function pause(milliseconds: number, signal?: AbortSignal): Promise<void> {
  await setTimeout(milliseconds, undefined, { ref: false, ...(signal && { signal }) }).catch(() => undefined);
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
