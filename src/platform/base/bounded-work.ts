/** Admits a limited amount of work of one kind. */
export interface Room {
  /** Throws if work would be refused now. Reserves no place for it. */
  look(): void;
  /** Does the work, or refuses it before it is begun. */
  admit<T>(work: () => Promise<T>): Promise<T>;
}

/** A limit on how long an expensive part waits for its turn. */
interface WaitLimit {
  readonly maxWaitMs: number;
  /** Makes the error of a part whose turn has not come by then. The part is not begun. */
  readonly refuse: () => Error;
}

/** Work with an expensive part: only so much work is admitted, and only so many expensive parts run at a time. */
export class BoundedWork implements Room {
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

  look(): void {
    if (this.#admitted >= this.#maxAdmitted) throw this.#refuse();
  }

  async admit<T>(work: () => Promise<T>): Promise<T> {
    this.look();
    this.#admitted += 1;
    try {
      return await work();
    } finally {
      this.#admitted -= 1;
    }
  }

  /** Runs an expensive part when its turn has come; first come, first served. */
  async run<T>(part: () => Promise<T>, limit?: WaitLimit): Promise<T> {
    if (this.#running < this.#concurrent) this.#running += 1;
    // The part that ends hands its place over, so the number that runs stays as it is.
    else await this.#turn(limit);
    try {
      return await part();
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#running -= 1;
    }
  }

  #turn(limit: WaitLimit | undefined): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#waiting.push(resolve);
    if (!limit) return promise;
    const timer = setTimeout(() => {
      this.#waiting.splice(this.#waiting.indexOf(resolve), 1);
      reject(limit.refuse());
    }, limit.maxWaitMs);
    return promise.finally(() => clearTimeout(timer));
  }
}
