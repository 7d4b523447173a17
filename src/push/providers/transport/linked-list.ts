/**
 * Items in the order in which they were added. An item is in one list at most, and can leave it at any time. A `Set`
 * would keep alive what it no longer holds (see base/slots.ts).
 */

/** An item that can be in a list. It holds its own place there. */
export interface Linked<T extends Linked<T>> {
  /** The list that the item is in; undefined: it is in none. */
  list: LinkedList<T> | undefined;
  previous: T | undefined;
  next: T | undefined;
}

export class LinkedList<T extends Linked<T>> {
  #first: T | undefined;
  #last: T | undefined;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get first(): T | undefined {
    return this.#first;
  }

  /** Adds an item that is in no list. */
  add(item: T): void {
    item.list = this;
    item.previous = this.#last;
    if (this.#last) this.#last.next = item;
    else this.#first = item;
    this.#last = item;
    this.#size += 1;
  }

  /** Removes an item that is in this list. */
  remove(item: T): void {
    const { previous, next } = item;
    if (previous) previous.next = next;
    else this.#first = next;
    if (next) next.previous = previous;
    else this.#last = previous;
    item.list = undefined;
    // An item that has left keeps no other item alive.
    item.previous = undefined;
    item.next = undefined;
    this.#size -= 1;
  }

  filter(fits: (item: T) => boolean): T[] {
    const found: T[] = [];
    for (let item = this.#first; item; item = item.next) {
      if (fits(item)) found.push(item);
    }
    return found;
  }
}
