interface QueueTimeout {
  readonly maxWaitMs: number;
  /** Makes the error of work that has waited so long. It is not begun. */
  readonly refuse: () => Error;
}

/** Runs work of one kind, no more than so much at a time and in the order of the calls. */
export class WorkQueue {
  /** How much work runs at a time. */
  concurrent: number;
  #running = 0;
  readonly #waiting: (() => void)[] = [];

  constructor(concurrent: number) {
    this.concurrent = concurrent;
  }

  async run<T>(work: () => Promise<T>, timeout?: QueueTimeout): Promise<T> {
    if (this.#running < this.concurrent) this.#running += 1;
    // The work before hands its place over, so the number of running work stays as it is.
    else await this.#wait(timeout);
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#running -= 1;
    }
  }

  #wait(timeout: QueueTimeout | undefined): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#waiting.push(resolve);
    if (!timeout) return promise;
    const timer = setTimeout(() => {
      this.#waiting.splice(this.#waiting.indexOf(resolve), 1);
      reject(timeout.refuse());
    }, timeout.maxWaitMs);
    return promise.finally(() => clearTimeout(timer));
  }
}
