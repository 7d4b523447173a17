/**
 * Limits on how long something may take: whatever hangs, nobody waits for ever. One timer serves all that wait for
 * the same reason.
 */
import { unavailable } from "./errors.ts";
import { Slots } from "./slots.ts";

/** What may take until its deadline, and no longer. */
export interface Timed {
  /** By performance.now(); Infinity: it has none. */
  readonly deadline: number;
  /** Called when it has passed, and may be called again until it is put down. */
  expire(): void;
}

/** What is in hand, each with its deadline. All that have one have the same time, so that the next is the oldest's. */
export class Deadlines<T extends Timed> {
  readonly #inHand = new Slots<T>();
  #timer: NodeJS.Timeout | undefined;

  /** @returns its place, to put it down */
  take(timed: T): number {
    this.#wakeAt(timed.deadline);
    return this.#inHand.take(timed);
  }

  /** Once, for each that was taken, expired or not. */
  release(place: number): void {
    this.#inHand.release(place);
  }

  [Symbol.iterator](): Iterator<T> {
    return this.#inHand[Symbol.iterator]();
  }

  #wakeAt(deadline: number): void {
    if (deadline === Number.POSITIVE_INFINITY) return;
    this.#timer ??= setTimeout(() => this.#expire(), deadline - performance.now()).unref();
  }

  #expire(): void {
    this.#timer = undefined;
    const now = performance.now();
    let next = Number.POSITIVE_INFINITY;
    for (const timed of this.#inHand) {
      if (timed.deadline > now) next = Math.min(next, timed.deadline);
      else timed.expire();
    }
    this.#wakeAt(next);
  }
}

/** Milliseconds that the check of credentials, and a handler, may take. */
const workMs = 10_000;

const waiting = new Deadlines();

/** What the work comes to, or `unavailable` if it takes too long; the work itself goes on unseen. */
export function withTimeout<T>(work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const expire = () =>
      reject(unavailable("A service that this one depends on", new Error("it took too long")));
    const place = waiting.take({ deadline: performance.now() + workMs, expire });
    work.then(
      (result) => {
        waiting.release(place);
        resolve(result);
      },
      (reason: unknown) => {
        waiting.release(place);
        reject(reason);
      },
    );
  });
}
