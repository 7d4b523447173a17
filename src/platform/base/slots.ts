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
