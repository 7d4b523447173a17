/** The header fields of responses, and whether they are valid (RFC 9113 sections 8.2 and 8.3). */
import type { Fields, ResponseFields } from "./connection.ts";
import { decodeHeaderBlock } from "./hpack-decoder.ts";
import { errorCode, StreamError } from "./protocol.ts";

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
    for (let index = 0; index < this.#fields.length; index += 2) {
      if (this.#fields[index] === name) return this.#fields[index + 1];
    }
    return undefined;
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
