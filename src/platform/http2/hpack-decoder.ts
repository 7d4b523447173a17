/** Decodes header blocks (RFC 7541 section 3), each by itself: we announce a dynamic table of size 0. */
import type { Fields } from "./connection.ts";
import { staticTable } from "./hpack-static-table.ts";
import { decodeHuffman } from "./huffman.ts";
import { ConnectionError, errorCode, StreamError } from "./protocol.ts";

/** Most fields of a block. */
const maxFields = 128;
/** Most bytes of a block's fields, each counted with 32 more (RFC 9113 section 6.5.2): what we announce. */
export const maxHeaderListBytes = 32_768;

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
