import { type QueueTimeout, WorkQueue } from "../platform/base/work-queue.ts";

/** A limit on how much work of a kind is done at a time. */
export interface WorkLimit {
  /** Throws if work would be refused now. Reserves no place. */
  refuseIfFull(): void;
  /** Does the work, or refuses it before it begins. */
  run<T>(work: () => Promise<T>): Promise<T>;
}

/**
 * A limit for work that has an expensive part. It limits the work that is admitted, and, lower, the expensive parts
 * that run at a time; further parts wait in a queue.
 */
export class QueueingLimit implements WorkLimit {
  readonly #parts: WorkQueue;
  readonly #maxAdmitted: number;
  readonly #refuse: () => Error;
  #admitted = 0;

  /**
   * @param concurrent how many expensive parts run at a time
   * @param maxAdmitted how much work is admitted at a time; further work is refused, before it has cost anything
   * @param refuse makes the error of refused work
   */
  constructor(concurrent: number, maxAdmitted: number, refuse: () => Error) {
    this.#parts = new WorkQueue(concurrent);
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
  runPart<T>(part: () => Promise<T>, timeout?: QueueTimeout): Promise<T> {
    return this.#parts.run(part, timeout);
  }
}
