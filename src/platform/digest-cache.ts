/**
 * Remembers digests in a piece of memory of a fixed size. As strings in a Map, a hundred thousand of them would
 * take four times as much, and V8 would mark each in every collection.
 */

/** Places that a digest may be in. */
const ways = 16;
/** 32-bit words that are kept of a digest: 128 bits, which nobody can find a second text for. */
const words = 4;

export class DigestCache {
  readonly #places: Uint32Array;
  readonly #setMask: number;
  /** Who gives way next where all places are taken. */
  #turn = 0;

  /** @param sets a power of two. Six times as many digests find room, nearly always (999 in 1000) */
  constructor(sets: number) {
    if (!Number.isInteger(Math.log2(sets))) throw new RangeError("the number of sets is no power of two");
    this.#places = new Uint32Array(sets * ways * words);
    this.#setMask = sets - 1;
  }

  /** @param digest of 16 bytes or more, each a character from U+0000 to U+00FF */
  has(digest: string): boolean {
    const first = this.#firstPlace(digest);
    for (let way = 0; way < ways; way += 1) if (this.#isAt(first + way * words, digest)) return true;
    return false;
  }

  /** In the place of another where there is no room. */
  add(digest: string): void {
    if (this.has(digest)) return;
    const first = this.#firstPlace(digest);
    let place = first + this.#turn * words;
    for (let way = 0; way < ways; way += 1) {
      if (this.#places[first + way * words] === 0) place = first + way * words;
    }
    for (let word = 0; word < words; word += 1) this.#places[place + word] = wordOf(digest, word);
    this.#turn = (this.#turn + 1) % ways;
  }

  #firstPlace(digest: string): number {
    return (wordOf(digest, 0) & this.#setMask) * ways * words;
  }

  #isAt(place: number, digest: string): boolean {
    for (let word = 0; word < words; word += 1) {
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
