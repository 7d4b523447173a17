/**
 * Items in progress, such as requests, each in a slot that is released soon. A Set that changes often allocates new
 * tables, and an old one keeps its former members alive, which cost a third of the speed of short requests.
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
