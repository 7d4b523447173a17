/** Work in progress, and limits on how long it may take, so that no caller waits for ever: one timer for each kind. */
import { unavailable } from "./errors.ts";

/** Items in progress, each in a slot. A Set that changes often keeps former members alive, at a third of the speed. */
export class Slots<T> {
  readonly #slots: (T | undefined)[] = [];
  readonly #free: number[] = [];

  take(item: T): number {
    const slot = this.#free.pop() ?? this.#slots.length;
    this.#slots[slot] = item;
    return slot;
  }

  /** Called once for each slot that was taken. */
  release(slot: number): void {
    this.#slots[slot] = undefined;
    this.#free.push(slot);
  }

  at(slot: number): T | undefined {
    return this.#slots[slot];
  }

  /** The items with their slots, in no order. */
  *entries(): Iterable<[slot: number, item: T]> {
    for (const [slot, item] of this.#slots.entries()) if (item !== undefined) yield [slot, item];
  }

  *[Symbol.iterator](): Iterator<T> {
    for (const item of this.#slots) if (item !== undefined) yield item;
  }
}

export interface Timed {
  /** The moment, by performance.now(); Infinity if there is no deadline. */
  readonly deadline: number;
  /** Called once, when the deadline has passed and the work has not been released. */
  expire(): void;
}

/** Work in progress with deadlines. Work that has expired is forgotten, whether or not it ever ends. */
export class Deadlines<T extends Timed> {
  readonly #slots = new Slots<T>();
  #timer: NodeJS.Timeout | undefined;
  #wakesAt = Number.POSITIVE_INFINITY;
  readonly #resolutionMs: number;

  /** @param resolutionMs between two passes over the work: a deadline may be noticed so much later */
  constructor(resolutionMs = 100) {
    this.#resolutionMs = resolutionMs;
  }

  take(timed: T): number {
    this.#wakeAt(timed.deadline);
    return this.#slots.take(timed);
  }

  /** Called when the work has ended; has no effect if it has expired. */
  release(slot: number, timed: T): void {
    if (this.#slots.at(slot) === timed) this.#slots.release(slot);
  }

  [Symbol.iterator](): Iterator<T> {
    return this.#slots[Symbol.iterator]();
  }

  #wakeAt(deadline: number): void {
    if (deadline >= this.#wakesAt) return;
    this.#wakesAt = deadline;
    clearTimeout(this.#timer);
    const delayMs = Math.max(deadline - performance.now(), this.#resolutionMs);
    // After a pause of this process, what has arrived meanwhile is read first: it may be what was waited for.
    this.#timer = setTimeout(() => setImmediate(() => this.#expire()), delayMs).unref();
  }

  #expire(): void {
    this.#wakesAt = Number.POSITIVE_INFINITY;
    const now = performance.now();
    let next = Number.POSITIVE_INFINITY;
    for (const [slot, timed] of this.#slots.entries()) {
      if (timed.deadline > now) next = Math.min(next, timed.deadline);
      else {
        this.#slots.release(slot);
        timed.expire();
      }
    }
    this.#wakeAt(next);
  }
}

const waiting = new Deadlines();

/** The result of the work, or of `onTimeout`, which may throw, if it takes longer; the work is not stopped. */
export function withTimeout<T, Late>(
  work: Promise<T>,
  timeoutMs: number,
  onTimeout: () => Late,
): Promise<T | Late> {
  return new Promise((resolve, reject) => {
    const expire = () => {
      try {
        resolve(onTimeout());
      } catch (error) {
        reject(error);
      }
    };
    const timed = { deadline: performance.now() + timeoutMs, expire };
    const slot = waiting.take(timed);
    work.then(
      (result) => {
        waiting.release(slot, timed);
        resolve(result);
      },
      (reason: unknown) => {
        waiting.release(slot, timed);
        reject(reason);
      },
    );
  });
}

/** Milliseconds that the check of a request's credentials may take, and its handler. */
const requestTimeoutMs = 10_000;

/** The result of a part of a request, such as its handler. Rejects with `unavailable` after ten seconds. */
export function withRequestTimeout<T>(work: Promise<T>): Promise<T> {
  return withTimeout(work, requestTimeoutMs, () => {
    throw unavailable("A service that this one depends on", new Error("it took too long"));
  });
}
