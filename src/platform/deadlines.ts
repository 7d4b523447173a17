/**
 * A limit on how long a request waits for what it depends on: whatever hangs, nobody waits for ever. One timer
 * serves all, as all have the same time: they pass in the order in which they came.
 */
import { unavailable } from "./errors.ts";

/** Milliseconds that the check of credentials, and a handler, may take. */
const workMs = 10_000;

interface Waiting {
  readonly until: number;
  reject(reason: unknown): void;
}

/** The oldest first. */
const waiting = new Set<Waiting>();
let timer: NodeJS.Timeout | undefined;

function wakeIn(milliseconds: number): void {
  timer = setTimeout(passDeadlines, milliseconds).unref();
}

function passDeadlines(): void {
  timer = undefined;
  const now = performance.now();
  for (const one of waiting) {
    if (one.until > now) {
      wakeIn(one.until - now);
      return;
    }
    waiting.delete(one);
    one.reject(unavailable("A service that this one depends on", new Error("it took too long")));
  }
}

/** What the work comes to, or `unavailable` if it takes too long; the work itself goes on unseen. */
export function inTime<T>(work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const one = { until: performance.now() + workMs, reject };
    waiting.add(one);
    if (timer === undefined) wakeIn(workMs);
    work.then(
      (result) => {
        waiting.delete(one);
        resolve(result);
      },
      (reason: unknown) => {
        waiting.delete(one);
        reject(reason);
      },
    );
  });
}
