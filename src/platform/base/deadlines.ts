/**
 * A limit on how long a request waits for what it depends on: whatever hangs, nobody waits for ever. One timer
 * serves all.
 */
import { unavailable } from "./errors.ts";
import { InHand } from "./slots.ts";

/** Milliseconds that the check of credentials, and a handler, may take. */
const workMs = 10_000;

interface Waiting {
  readonly until: number;
  reject(reason: unknown): void;
}

const waiting = new InHand<Waiting>();
let timer: NodeJS.Timeout | undefined;

function wakeIn(milliseconds: number): void {
  timer = setTimeout(passDeadlines, milliseconds).unref();
}

function passDeadlines(): void {
  timer = undefined;
  const now = performance.now();
  let next = Number.POSITIVE_INFINITY;
  for (const { until, reject } of waiting) {
    // Putting it down is left to the end of its work, as ever.
    if (until > now) next = Math.min(next, until);
    else reject(unavailable("A service that this one depends on", new Error("it took too long")));
  }
  if (next < Number.POSITIVE_INFINITY) wakeIn(next - now);
}

/** What the work comes to, or `unavailable` if it takes too long; the work itself goes on unseen. */
export function inTime<T>(work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const place = waiting.take({ until: performance.now() + workMs, reject });
    if (timer === undefined) wakeIn(workMs);
    work.then(
      (result) => {
        waiting.putDown(place);
        resolve(result);
      },
      (reason: unknown) => {
        waiting.putDown(place);
        reject(reason);
      },
    );
  });
}
