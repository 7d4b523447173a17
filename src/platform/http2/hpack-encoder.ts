/** Encodes the header blocks of requests (RFC 7541 section 3). What they share goes into the peer's table once. */
import type { Fields, RequestHead } from "./connection.ts";
import { staticTable } from "./hpack-static-table.ts";

/** Bytes that the peer's table has at first, and the most that we use of it. */
const maxTableBytes = 4_096;
/** Bytes that an entry counts beside its name and value (section 4.1). */
const entryOverhead = 32;
/** Most bytes of an encoded integer below 2^28. */
const integerBytes = 5;

const pathPattern = /^\/[\x21-\x7e]*$/;
const namePattern = /^[!#$%&'*+.^_`|~0-9a-z-]+$/;
const pseudoPattern = /^:(?:method|scheme|authority)$/;
/** RFC 9113 section 8.2.1: no control characters, and no white space at either end. */
const valuePattern = /^(?![\t ])[\t\x20-\x7e\x80-\xff]*(?<![\t ])$/;

/** Indices of the static table, by name and by name and value. */
const staticIndices = new Map<string, number>();
for (const [index, [name, value]] of staticTable.entries()) {
  if (!staticIndices.has(name)) staticIndices.set(name, index + 1);
  if (value !== "") staticIndices.set(keyOf(name, value), index + 1);
}
const pathIndex = staticIndices.get(":path") ?? 0;

/** First bits of a field's representation (section 6). */
const indexed = { bits: 7, first: 0b1000_0000 };
const withIndexing = { bits: 6, first: 0b0100_0000 };
const withoutIndexing = { bits: 4, first: 0 };
const neverIndexed = { bits: 4, first: 0b0001_0000 };
const sizeUpdate = { bits: 5, first: 0b0010_0000 };
/** First bits of the length of a string that is not Huffman-coded. */
const plain = { bits: 7, first: 0 };

function keyOf(name: string, value: string): string {
  return `${name}\0${value}`;
}

export class HpackEncoder {
  /** The entries of the dynamic table, the oldest first. */
  readonly #entries: { readonly key: string; readonly size: number }[] = [];
  /** By entry: how many were inserted before it. */
  readonly #positions = new Map<string, number>();
  #inserted = 0;
  #size = 0;
  #maxSize = maxTableBytes;
  /** The sizes that the next block announces (section 4.2). */
  #sizeUpdates: readonly number[] = [];
  /** Blocks of shared fields that are all in the table, which holds as long as nothing is inserted or evicted. */
  #blocks = new WeakMap<Fields, Uint8Array>();
  #scratch = Buffer.allocUnsafeSlow(8_192);
  #at = 0;

  /** The peer's SETTINGS_HEADER_TABLE_SIZE. */
  setPeerTableSize(bytes: number): void {
    const size = Math.min(bytes, maxTableBytes);
    if (size === this.#maxSize && this.#sizeUpdates.length === 0) return;
    // If the size changes more than once between two blocks, the smallest and the last are announced.
    const [smallest = size] = this.#sizeUpdates;
    this.#sizeUpdates = smallest < size ? [smallest, size] : [size];
    this.#maxSize = size;
    this.#evict(0);
    this.#blocks = new WeakMap();
  }

  /** @returns the block, valid until the next call @throws TypeError for what is not valid; the table is as it was */
  encode({ path, shared, own = [] }: RequestHead): Uint8Array {
    if (!pathPattern.test(path)) throw new TypeError("The path is not valid.");
    check(own, false);
    const known = this.#blocks.get(shared);
    if (known === undefined) check(shared, true);
    this.#begin(path, known ? [] : shared, own, known?.length ?? 0);
    for (const size of this.#sizeUpdates) this.#integer(sizeUpdate, size);
    this.#sizeUpdates = [];
    this.#integer(neverIndexed, pathIndex);
    this.#string(path);
    if (known) {
      this.#scratch.set(known, this.#at);
      this.#at += known.length;
    } else this.#encodeShared(shared);
    for (let index = 0; index < own.length; index += 2) {
      this.#literal(neverIndexed, own[index] ?? "", own[index + 1] ?? "");
    }
    return this.#scratch.subarray(0, this.#at);
  }

  #begin(path: string, shared: Fields, own: Fields, known: number): void {
    let bytes = path.length + known + 4 * integerBytes;
    for (const text of shared) bytes += text.length + 2 * integerBytes;
    for (const text of own) bytes += text.length + 2 * integerBytes;
    if (bytes > this.#scratch.length) this.#scratch = Buffer.allocUnsafeSlow(bytes * 2);
    this.#at = 0;
  }

  #encodeShared(shared: Fields): void {
    const start = this.#at;
    const inserted = this.#inserted;
    for (let index = 0; index < shared.length; index += 2) {
      this.#sharedField(shared[index] ?? "", shared[index + 1] ?? "");
    }
    if (this.#inserted === inserted)
      this.#blocks.set(shared, Uint8Array.from(this.#scratch.subarray(start, this.#at)));
  }

  #sharedField(name: string, value: string): void {
    const key = keyOf(name, value);
    const fixed = staticIndices.get(key);
    const position = this.#positions.get(key);
    if (fixed !== undefined) this.#integer(indexed, fixed);
    else if (position !== undefined) this.#integer(indexed, staticTable.length + this.#inserted - position);
    else if (key.length - 1 + entryOverhead > this.#maxSize) this.#literal(withoutIndexing, name, value);
    else {
      this.#literal(withIndexing, name, value);
      this.#insert(key);
    }
  }

  #insert(key: string): void {
    const size = key.length - 1 + entryOverhead;
    this.#evict(size);
    this.#entries.push({ key, size });
    this.#positions.set(key, this.#inserted);
    this.#inserted += 1;
    this.#size += size;
    this.#blocks = new WeakMap();
  }

  /** Evicts the oldest entries until there is room (section 4.4). */
  #evict(room: number): void {
    while (this.#size + room > this.#maxSize) {
      const oldest = this.#entries.shift();
      if (oldest === undefined) return;
      this.#size -= oldest.size;
      this.#positions.delete(oldest.key);
    }
  }

  #literal(kind: typeof indexed, name: string, value: string): void {
    const index = staticIndices.get(name) ?? 0;
    this.#integer(kind, index);
    if (index === 0) this.#string(name);
    this.#string(value);
  }

  /** Section 5.1. */
  #integer({ bits, first }: typeof indexed, value: number): void {
    const most = 2 ** bits - 1;
    if (value < most) {
      this.#scratch[this.#at++] = first | value;
      return;
    }
    this.#scratch[this.#at++] = first | most;
    let rest = value - most;
    for (; rest >= 128; rest = Math.floor(rest / 128)) this.#scratch[this.#at++] = (rest % 128) + 128;
    this.#scratch[this.#at++] = rest;
  }

  /** Section 5.2. Field values are bytes, and a character of ISO 8859-1 each. */
  #string(text: string): void {
    this.#integer(plain, text.length);
    this.#at += this.#scratch.write(text, this.#at, "latin1");
  }
}

function check(fields: Fields, mayBePseudo: boolean): void {
  let isPseudo = mayBePseudo;
  for (let index = 0; index < fields.length; index += 2) {
    const name = fields[index] ?? "";
    isPseudo &&= name.startsWith(":");
    if (!(isPseudo ? pseudoPattern : namePattern).test(name))
      throw new TypeError("A field's name is not valid.");
    if (!valuePattern.test(fields[index + 1] ?? "")) throw new TypeError("A field's value is not valid.");
  }
}
