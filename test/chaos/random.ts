/** Chance that can be repeated: what is drawn follows from a seed (mulberry32). */
export class Chance {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** From 0 to 1, without 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 0x1_0000_0000;
  }

  /** From `low` to `high`, without `high`. */
  between(low: number, high: number): number {
    return low + this.next() * (high - low);
  }

  /** An integer from `low` to `high`, both included. */
  integer(low: number, high: number): number {
    return Math.floor(this.between(low, high + 1));
  }

  /** @throws if there is nothing to choose from */
  one<T>(choices: readonly T[]): T {
    const chosen = choices[this.integer(0, choices.length - 1)];
    if (chosen === undefined) throw new Error("there is nothing to choose from");
    return chosen;
  }

  isWithin(share: number): boolean {
    return this.next() < share;
  }
}
