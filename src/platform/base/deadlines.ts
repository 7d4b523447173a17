/**
 * Limits on how long work may take, so that no caller waits for ever. One timer serves all items of the same kind.
 */
import { unavailable } from "./errors.ts";
import { Slots } from "./slots.ts";

/** Work with a deadline. */
export interface Timed {
  /** By performance.now(); Infinity: no deadline. */
  readonly deadline: number;
  /** Called when the deadline has passed. It may be called again until the slot is released. */
  expire(): void;
}

/** Work in progress with deadlines. All finite deadlines are the same time after `take`, so the oldest is next. */
export class Deadlines<T extends Timed> {
  readonly #slots = new Slots<T>();
  #timer: NodeJS.Timeout | undefined;

  /** @returns the slot, for `release` */
  take(timed: T): number {
    this.#wakeAt(timed.deadline);
    return this.#slots.take(timed);
  }

  /** Called once for each slot that was taken, whether it has expired or not. */
  release(slot: number): void {
    this.#slots.release(slot);
  }

  [Symbol.iterator](): Iterator<T> {
    return this.#slots[Symbol.iterator]();
  }

  #wakeAt(deadline: number): void {
    if (deadline === Number.POSITIVE_INFINITY) return;
    this.#timer ??= setTimeout(() => this.#expire(), deadline - performance.now()).unref();
  }

  #expire(): void {
    this.#timer = undefined;
    const now = performance.now();
    let next = Number.POSITIVE_INFINITY;
    for (const timed of this.#slots) {
      if (timed.deadline > now) next = Math.min(next, timed.deadline);
      else timed.expire();
    }
    this.#wakeAt(next);
  }
}

/** Milliseconds that the check of credentials may take, and a handler. */
const workTimeoutMs = 10_000;

const waiting = new Deadlines();

/** The result of the work. Rejects with `unavailable` if it takes too long; the work itself is not stopped. */
export function withTimeout<T>(work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const expire = () =>
      reject(unavailable("A service that this one depends on", new Error("it took too long")));
    const slot = waiting.take({ deadline: performance.now() + workTimeoutMs, expire });
    work.then(
      (result) => {
        waiting.release(slot);
        resolve(result);
      },
      (reason: unknown) => {
        waiting.release(slot);
        reject(reason);
      },
    );
  });
}
