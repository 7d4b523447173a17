/** Decodes header blocks (RFC 7541 section 3), each by itself: we announce a dynamic table of size 0. */
import type { Fields } from "./connection.ts";
import { staticTable } from "./hpack-static-table.ts";
import { ConnectionError, errorCode, maxHeaderListBytes, StreamError } from "./protocol.ts";

/** Most fields of a block. */
const maxFields = 128;

/** @throws ConnectionError if it is no header block, StreamError if there is more in it than we take */
export function decodeHeaderBlock(block: Buffer): Fields {
  return new HeaderBlock(block).fields();
}

const broken = (what: string): ConnectionError => new ConnectionError(errorCode.compressionError, what);

class HeaderBlock {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  fields(): Fields {
    const fields: string[] = [];
    let size = 0;
    while (this.#at < this.#bytes.length) {
      const first = this.#bytes[this.#at] ?? 0;
      if ((first & 0b1110_0000) === 0b0010_0000) {
        this.#sizeUpdate(fields.length === 0);
        continue;
      }
      const [name, value] = this.#field(first);
      size += name.length + value.length + 32;
      if (fields.length >= 2 * maxFields || size > maxHeaderListBytes) {
        throw new StreamError(errorCode.enhanceYourCalm, "too many header fields");
      }
      fields.push(name, value);
    }
    return fields;
  }

  /** Section 6.3: it comes first in a block, and is at most what we announced. */
  #sizeUpdate(isFirst: boolean): void {
    if (!isFirst) throw broken("a table size within a block");
    if (this.#integer(5) !== 0) throw broken("a dynamic table");
  }

  /** Sections 6.1 and 6.2. "With incremental indexing" adds nothing to a table of size 0. */
  #field(first: number): readonly [name: string, value: string] {
    if (first >= 0b1000_0000) return entry(this.#integer(7));
    const index = this.#integer(first >= 0b0100_0000 ? 6 : 4);
    const name = index === 0 ? this.#string() : entry(index)[0];
    return [name, this.#string()];
  }

  /** Section 5.1. @param bits of the first byte that belong to it */
  #integer(bits: number): number {
    const most = 2 ** bits - 1;
    let value = this.#byte() & most;
    if (value < most) return value;
    for (let shift = 0; shift <= 21; shift += 7) {
      const byte = this.#byte();
      value += (byte & 127) << shift;
      if (byte < 128) return value;
    }
    throw broken("an integer is too large");
  }

  /** Section 5.2. */
  #string(): string {
    const isHuffman = (this.#bytes[this.#at] ?? 0) >= 128;
    const length = this.#integer(7);
    const start = this.#at;
    const end = start + length;
    if (end > this.#bytes.length) throw broken("a string is cut off");
    this.#at = end;
    return isHuffman ? decodeHuffman(this.#bytes, start, end) : this.#bytes.toString("latin1", start, end);
  }

  #byte(): number {
    const byte = this.#bytes[this.#at];
    if (byte === undefined) throw broken("a field is cut off");
    this.#at += 1;
    return byte;
  }
}

function entry(index: number): readonly [name: string, value: string] {
  const found = staticTable[index - 1];
  if (found === undefined) throw broken("an index without an entry");
  return found;
}

/** The bits of the Huffman code of each byte (section 5.2 and appendix B). The code is canonical; the end-of-string symbol has the last one, 30 ones. */
const codeBits = `
  13 23 28 28 28 28 28 28 28 24 30 28 28 30 28 28 28 28 28 28 28 28 30 28 28 28 28 28 28 28 28 28
  6 10 10 12 13 6 8 11 10 10 8 11 8 6 6 6 5 5 5 6 6 6 6 6 6 6 7 8 15 6 12 10
  13 6 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 8 7 8 13 19 13 14 6
  15 5 6 5 6 5 6 6 6 5 7 7 6 6 6 5 6 7 6 5 5 6 7 7 7 7 7 15 11 14 13 28
  20 22 20 20 22 22 22 23 22 23 23 23 23 23 24 23 24 24 22 23 24 23 23 23 23 21 22 23 22 23 23 24
  22 21 20 22 22 23 23 21 23 22 22 24 21 22 23 23 21 21 22 21 23 22 23 23 20 22 22 22 23 22 22 23
  26 26 20 19 22 23 22 25 26 26 26 27 27 26 24 25 19 21 26 27 27 26 27 24 21 21 26 26 28 27 27 27
  20 24 20 21 22 21 21 23 22 22 25 25 24 24 26 23 26 27 26 26 27 27 27 27 27 28 27 27 27 27 27 26`
  .trim()
  .split(/\s+/)
  .map(Number);

const endOfString = 256;
const maxBits = 30;

/** An inner node of the code's tree: for each bit another node, or a symbol. */
interface Node {
  readonly index: number;
  /** Whether all bits up to here are ones, and fewer than eight: then a string may end here (section 5.2). */
  readonly isPadding: boolean;
  readonly next: [Node | number | undefined, Node | number | undefined];
}

/** The step for four bits at a node: the next node, and the symbol that was completed on the way. */
const nextNode = new Uint8Array(256 * 16);
const symbol = new Int16Array(256 * 16);
const mayEnd = new Uint8Array(256);
/** The value of {@link symbol} if no symbol was completed. */
const none = -1;

const nodes: Node[] = [];
const root = addNode(true);
addCodes();
for (const node of nodes) fillTables(node);

function addNode(isPadding: boolean): Node {
  const node: Node = { index: nodes.length, isPadding, next: [undefined, undefined] };
  nodes.push(node);
  return node;
}

function addCodes(): void {
  let code = 0;
  for (let bits = 1; bits <= maxBits; bits += 1) {
    for (const [byte, length] of codeBits.entries()) {
      if (length === bits) addCode(code++, bits, byte);
    }
    if (bits === maxBits) addCode(code, bits, endOfString);
    code *= 2;
  }
}

function addCode(code: number, bits: number, value: number): void {
  let node = root;
  for (let depth = 1; depth < bits; depth += 1) {
    const bit = (code >>> (bits - depth)) & 1;
    let next = node.next[bit];
    if (typeof next !== "object") {
      next = addNode(bit === 1 && node.isPadding && depth < 8);
      node.next[bit] = next;
    }
    node = next;
  }
  node.next[code & 1] = value;
}

function fillTables(start: Node): void {
  mayEnd[start.index] = start.isPadding ? 1 : 0;
  for (let four = 0; four < 16; four += 1) {
    let node = start;
    let completed: number = none;
    for (let mask = 8; mask > 0; mask >>= 1) {
      const next = node.next[(four & mask) === 0 ? 0 : 1];
      if (typeof next === "number") completed = next;
      node = typeof next === "object" ? next : root;
    }
    nextNode[start.index * 16 + four] = node.index;
    symbol[start.index * 16 + four] = completed;
  }
}

/** @throws ConnectionError if it is not the code of a string */
function decodeHuffman(bytes: Buffer, start: number, end: number): string {
  // The shortest code has five bits.
  const text = Buffer.allocUnsafe(Math.ceil(((end - start) * 8) / 5));
  let length = 0;
  let node = 0;
  for (let half = start * 2; half < end * 2; half += 1) {
    const byte = bytes[half >> 1] ?? 0;
    const index = node * 16 + ((half & 1) === 0 ? byte >> 4 : byte & 15);
    const value = symbol[index] ?? none;
    if (value === endOfString)
      throw new ConnectionError(errorCode.compressionError, "a string goes on after its end");
    if (value !== none) text[length++] = value;
    node = nextNode[index] ?? 0;
  }
  if (mayEnd[node] !== 1)
    throw new ConnectionError(errorCode.compressionError, "a string ends inside a code");
  return text.toString("latin1", 0, length);
}
