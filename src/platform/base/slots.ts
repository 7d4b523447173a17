/**
 * What is in hand at the moment, such as requests: each is put down soon. It is no Set on purpose. A Set whose
 * members come and go makes itself a new table every so often, and the old one, once V8 has moved it to the old
 * generation, keeps alive what was in it until that generation is collected: a share of all requests would be
 * promoted with everything they hold, which cost a third of the speed of short requests.
 */
export class Slots<T> {
  readonly #places: (T | undefined)[] = [];
  readonly #free: number[] = [];

  /** @returns its place, to put it down */
  take(thing: T): number {
    const place = this.#free.pop() ?? this.#places.length;
    this.#places[place] = thing;
    return place;
  }

  /** Once, for each that was taken. */
  release(place: number): void {
    this.#places[place] = undefined;
    this.#free.push(place);
  }

  /** In no order. */
  *[Symbol.iterator](): Iterator<T> {
    for (const thing of this.#places) if (thing !== undefined) yield thing;
  }
}
