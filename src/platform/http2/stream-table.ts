/**
 * The open streams by their ids, which count up by two; where two would have one slot, the table grows (base/slots.ts).
 */
import type { Stream } from "./stream.ts";

/** A power of two, as all sizes. */
const firstSize = 128;

export class StreamTable {
  #places: (Stream | undefined)[] = empty(firstSize);
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get(id: number): Stream | undefined {
    const stream = this.#places[this.#placeOf(id)];
    return stream?.id === id ? stream : undefined;
  }

  add(stream: Stream): void {
    while (this.#places[this.#placeOf(stream.id)] !== undefined) this.#grow();
    this.#places[this.#placeOf(stream.id)] = stream;
    this.#size += 1;
  }

  /** @returns whether it was there */
  remove(stream: Stream): boolean {
    const place = this.#placeOf(stream.id);
    if (this.#places[place] !== stream) return false;
    this.#places[place] = undefined;
    this.#size -= 1;
    return true;
  }

  /** All streams, in no order. */
  all(): Stream[] {
    return this.#places.filter((stream) => stream !== undefined);
  }

  #placeOf(id: number): number {
    return (id >>> 1) & (this.#places.length - 1);
  }

  /** Streams at different places keep different places in a table of twice the size. */
  #grow(): void {
    const streams = this.all();
    this.#places = empty(this.#places.length * 2);
    for (const stream of streams) this.#places[this.#placeOf(stream.id)] = stream;
  }
}

function empty(size: number): (Stream | undefined)[] {
  return Array.from({ length: size }, () => undefined);
}
