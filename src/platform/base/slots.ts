/**
 * Items in progress, such as requests, each in a slot that is released soon. This is not a Set on purpose. A Set
 * whose members change often allocates a new table from time to time. Once V8 has moved the old table to the old
 * generation, the table keeps its former members alive until that generation is collected. Part of all requests
 * would be promoted with everything they hold, which cost a third of the speed of short requests.
 */
export class Slots<T> {
  readonly #slots: (T | undefined)[] = [];
  readonly #free: number[] = [];

  /** @returns the slot, for `release` */
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

  /** The item in the slot; undefined if the slot is free. */
  at(slot: number): T | undefined {
    return this.#slots[slot];
  }

  /** The items with their slots, in no order. */
  *entries(): Iterable<[slot: number, item: T]> {
    for (const [slot, item] of this.#slots.entries()) if (item !== undefined) yield [slot, item];
  }

  /** The items, in no order. */
  *[Symbol.iterator](): Iterator<T> {
    for (const item of this.#slots) if (item !== undefined) yield item;
  }
}
