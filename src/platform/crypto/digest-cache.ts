/** A set-associative cache of digests in memory of a fixed size, half of what strings in a Map take. */

/** Digests in one set. */
const ways = 16;
/** 32-bit words that are kept of a digest: 128 bits, for which a second preimage cannot be found. */
const words = 4;

export class DigestCache {
  readonly #places: Uint32Array;
  readonly #setMask: number;

  /** @param sets a power of two. Of the newest `6 * sets` digests, 9,999 in 10,000 are in the cache */
  constructor(sets: number) {
    if (!Number.isInteger(Math.log2(sets))) throw new RangeError("the number of sets is no power of two");
    this.#places = new Uint32Array(sets * ways * words);
    this.#setMask = sets - 1;
  }

  /** @param digest of 16 bytes or more, each a character from U+0000 to U+00FF */
  has(digest: string): boolean {
    const first = this.#firstPlace(digest);
    const word = wordOf(digest, 0);
    for (let place = first; place < first + ways * words; place += words) {
      if (this.#places[place] === word && this.#isAt(place, digest)) return true;
    }
    return false;
  }

  /** Puts the digest at the front of its set and evicts the oldest of the set. */
  add(digest: string): void {
    if (this.has(digest)) return;
    const first = this.#firstPlace(digest);
    this.#places.copyWithin(first + words, first, first + (ways - 1) * words);
    for (let word = 0; word < words; word += 1) this.#places[first + word] = wordOf(digest, word);
  }

  #firstPlace(digest: string): number {
    return (wordOf(digest, 0) & this.#setMask) * ways * words;
  }

  /** Compares all words but the first. */
  #isAt(place: number, digest: string): boolean {
    for (let word = 1; word < words; word += 1) {
      if (this.#places[place + word] !== wordOf(digest, word)) return false;
    }
    return true;
  }
}

/** Four bytes of the digest as an unsigned number. */
function wordOf(digest: string, word: number): number {
  const at = word * 4;
  const low = digest.charCodeAt(at) | (digest.charCodeAt(at + 1) << 8);
  return (low | (digest.charCodeAt(at + 2) << 16) | (digest.charCodeAt(at + 3) << 24)) >>> 0;
}
