import { Deadlines } from "./deadlines.ts";

interface Waiter {
  readonly deadline: number;
  expire(): void;
  begin(): void;
}

/** Work that may wait for the same key; further work is refused at once. */
const maxWaiting = 100;

/** Does work on the same key one at a time, in the order of arrival, so that only one connection waits. */
export class Turns {
  readonly #waitMs: number;
  readonly #refuse: () => Error;
  readonly #limits = new Deadlines<Waiter>();
  /** By key that is worked on: the calls that wait. */
  readonly #waiting = new Map<string, Waiter[]>();

  /**
   * @param waitMs milliseconds that work waits, unless the call says @param refuse the error of work that waits longer
   */
  constructor(waitMs: number, refuse: () => Error) {
    this.#waitMs = waitMs;
    this.#refuse = refuse;
  }

  /** Does the work when its turn has come. Work whose turn does not come within the limit is refused, and not begun. */
  async take<T>(key: string, work: () => Promise<T>, waitMs = this.#waitMs): Promise<T> {
    const waiting = this.#waiting.get(key);
    if (waiting) await this.#wait(waiting, waitMs);
    else this.#waiting.set(key, []);
    try {
      return await work();
    } finally {
      const next = this.#waiting.get(key)?.shift();
      if (next) next.begin();
      else this.#waiting.delete(key);
    }
  }

  #wait(waiting: Waiter[], waitMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const refuse = () => reject(this.#refuse());
      if (waiting.length >= maxWaiting) return refuse();
      const waiter: Waiter = {
        deadline: performance.now() + waitMs,
        expire: () => {
          waiting.splice(waiting.indexOf(waiter), 1);
          refuse();
        },
        begin: () => {
          this.#limits.release(slot, waiter);
          resolve();
        },
      };
      const slot = this.#limits.take(waiter);
      waiting.push(waiter);
    });
  }
}
