/** Header sections: from frames to blocks, and from blocks to fields that are valid (RFC 9113 sections 4.3, 8.2 and 8.3). */
import type { Fields, ResponseFields } from "./connection.ts";
import { decodeHeaderBlock } from "./hpack-decoder.ts";
import { ConnectionError, errorCode, flag, protocolError, StreamError } from "./protocol.ts";

/** Most bytes of a block, encoded. Decoded, it may have half as many. */
const maxBlockBytes = 65_536;
/** Most frames of a block: an endless row of small ones would cost more than its bytes. */
const maxFrames = 64;

export interface HeaderSection {
  readonly streamId: number;
  readonly isEnd: boolean;
  readonly block: Buffer;
}

/** Puts header blocks together from HEADERS and CONTINUATION frames (RFC 9113 sections 4.3 and 6.10). */
export class HeaderSections {
  #open: { readonly streamId: number; readonly isEnd: boolean; readonly parts: Buffer[] } | undefined;
  #bytes = 0;

  /** The stream whose block goes on: the next frame must be CONTINUATION of this stream. */
  get continued(): number | undefined {
    return this.#open?.streamId;
  }

  /** @returns the section, if it ends here */
  begin(flags: number, streamId: number, payload: Buffer): HeaderSection | undefined {
    let part = unpadded(flags, payload);
    if ((flags & flag.priority) !== 0) {
      if (part.length < 5) throw new ConnectionError(errorCode.frameSizeError, "HEADERS is too short");
      part = part.subarray(5);
    }
    const isEnd = (flags & flag.endStream) !== 0;
    if ((flags & flag.endHeaders) !== 0) return { streamId, isEnd, block: part };
    this.#open = { streamId, isEnd, parts: [part] };
    this.#bytes = part.length;
    return undefined;
  }

  /** @returns the section, if it ends here */
  continue(flags: number, streamId: number, payload: Buffer): HeaderSection | undefined {
    const open = this.#open;
    if (open?.streamId !== streamId) throw protocolError("CONTINUATION without HEADERS");
    open.parts.push(payload);
    this.#bytes += payload.length;
    if (this.#bytes > maxBlockBytes || open.parts.length > maxFrames) {
      throw new ConnectionError(errorCode.enhanceYourCalm, "a header block is too long");
    }
    if ((flags & flag.endHeaders) === 0) return undefined;
    this.#open = undefined;
    return { streamId, isEnd: open.isEnd, block: Buffer.concat(open.parts) };
  }
}

/** The content of a frame of DATA or HEADERS without its padding (section 6.1). */
export function unpadded(flags: number, payload: Buffer): Buffer {
  if ((flags & flag.padded) === 0) return payload;
  const padding = payload[0];
  if (padding === undefined) throw new ConnectionError(errorCode.frameSizeError, "a padded frame is empty");
  if (padding >= payload.length) throw protocolError("a frame has more padding than content");
  return payload.subarray(1, payload.length - padding);
}

interface ResponseHead {
  /** The status, from 100 to 999. Below 200 the response is an interim one, and the final one follows. */
  readonly status: number;
  readonly fields: ResponseFields;
  /** The size of the body as `content-length` announces it; undefined: it may have any. */
  readonly bodyBytes: number | undefined;
}

const namePattern = /^[!#$%&'*+.^_`|~0-9a-z-]+$/;
const badValue = /[\0\r\n]|^[\t ]|[\t ]$/;
/** Fields that concern a connection of HTTP/1.1. */
const ofConnection = new Set([
  "connection",
  "proxy-connection",
  "keep-alive",
  "transfer-encoding",
  "upgrade",
]);

const malformed = (what: string): StreamError => new StreamError(errorCode.protocolError, what);

class FieldList implements ResponseFields {
  readonly #fields: Fields;

  constructor(fields: Fields) {
    this.#fields = fields;
  }

  get(name: string): string | undefined {
    let found: string | undefined;
    for (let index = 0; index < this.#fields.length; index += 2) {
      const value = this.#fields[index + 1];
      if (this.#fields[index] === name) found = found === undefined ? value : `${found}, ${value}`;
    }
    return found;
  }
}

/** Reads header blocks. @throws ConnectionError if it is no header block @throws StreamError if it is not valid */
export class ResponseReader {
  readonly head = rememberLast(headOf);
  /** The fields after a body (section 8.1). */
  readonly trailers = rememberLast(trailersOf);
}

/** As blocks have no state, one that is the same as the last is not decoded again. */
function rememberLast<T>(read: (fields: Fields) => T): (block: Buffer) => T {
  let last: { readonly block: Buffer; readonly result: T } | undefined;
  return (block) => {
    if (!last?.block.equals(block))
      last = { result: read(decodeHeaderBlock(block)), block: Buffer.from(block) };
    return last.result;
  };
}

function trailersOf(fields: Fields): ResponseFields {
  check(fields, 0);
  return new FieldList(fields);
}

function headOf(fields: Fields): ResponseHead {
  const [name, status = ""] = fields;
  if (name !== ":status" || !/^[1-9]\d\d$/.test(status) || status === "101") throw malformed("no status");
  check(fields, 2);
  const list = new FieldList(fields);
  return { status: Number(status), fields: list, bodyBytes: bodyBytesOf(status, list) };
}

/** Section 8.1.1. Responses without a body may announce the size of another's (RFC 9110 section 8.6). */
function bodyBytesOf(status: string, fields: ResponseFields): number | undefined {
  const length = fields.get("content-length");
  if (length === undefined || status === "204" || status === "304") return undefined;
  if (!/^\d{1,15}$/.test(length)) throw malformed("a size that is no number");
  return Number(length);
}

/** @param start behind the pseudo-header */
function check(fields: Fields, start: number): void {
  for (let index = start; index < fields.length; index += 2) {
    const [name = "", value = ""] = [fields[index], fields[index + 1]];
    if (!namePattern.test(name) || ofConnection.has(name)) throw malformed("a field's name");
    if (badValue.test(value)) throw malformed("a field's value");
  }
}
