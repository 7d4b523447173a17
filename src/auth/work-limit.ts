/** A limit on how much work of a kind is done at a time. */
export interface WorkLimit {
  /** Throws if work would be refused now. Reserves no place. */
  refuseIfFull(): void;
  /** Does the work, or refuses it before it begins. */
  run<T>(work: () => Promise<T>): Promise<T>;
}

/** For how long an expensive part waits, and the error if it waits longer. */
interface QueueTimeout {
  readonly maxWaitMs: number;
  /** Makes the error of a part that has waited so long. The part is not begun. */
  readonly refuse: () => Error;
}

/**
 * A limit for work that has an expensive part. It limits the work that is admitted, and, lower, the expensive parts that
 * run at a time; further parts wait in a queue.
 */
export class QueueingLimit implements WorkLimit {
  readonly #concurrent: number;
  readonly #maxAdmitted: number;
  readonly #refuse: () => Error;
  #admitted = 0;
  #running = 0;
  readonly #waiting: (() => void)[] = [];

  /**
   * @param concurrent how many expensive parts run at a time
   * @param maxAdmitted how much work is admitted at a time; further work is refused, before it has cost anything
   * @param refuse makes the error of refused work
   */
  constructor(concurrent: number, maxAdmitted: number, refuse: () => Error) {
    this.#concurrent = concurrent;
    this.#maxAdmitted = maxAdmitted;
    this.#refuse = refuse;
  }

  refuseIfFull(): void {
    if (this.#admitted >= this.#maxAdmitted) throw this.#refuse();
  }

  async run<T>(work: () => Promise<T>): Promise<T> {
    this.refuseIfFull();
    this.#admitted += 1;
    try {
      return await work();
    } finally {
      this.#admitted -= 1;
    }
  }

  /** Runs an expensive part as soon as fewer than `concurrent` run, in the order of the calls. */
  async runPart<T>(part: () => Promise<T>, timeout?: QueueTimeout): Promise<T> {
    if (this.#running < this.#concurrent) this.#running += 1;
    // The part before hands its place over, so the number of running parts stays as it is.
    else await this.#wait(timeout);
    try {
      return await part();
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
