/** A limit on how much work of a kind is done at a time. */
export class WorkLimit {
  /** How much work is done at a time; further work is refused, before it has cost anything. */
  most: number;
  readonly #refuse: () => Error;
  #running = 0;

  /**
   * @param refuse makes the error of refused work
   */
  constructor(most: number, refuse: () => Error) {
    this.most = most;
    this.#refuse = refuse;
  }

  /** Throws if work would be refused now. Reserves no place. */
  refuseIfFull(): void {
    if (this.#running >= this.most) throw this.#refuse();
  }

  /** Does the work, or refuses it before it begins. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    this.refuseIfFull();
    this.#running += 1;
    try {
      return await work();
    } finally {
      this.#running -= 1;
    }
  }
}
