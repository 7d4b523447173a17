/** Request and response messages of unary calls as bytes: formats, the envelope of gRPC and gRPC-Web, gzip. */
import { gunzipSync } from "node:zlib";
import {
  type DescMessage,
  fromBinary,
  fromJsonString,
  type Message,
  toBinary,
  toJsonString,
} from "@bufbuild/protobuf";
import { codeOf } from "../base/error-code.ts";
import type { Dialect } from "./dialects.ts";
import { faultOf } from "./faults.ts";

/** Bytes of messages, before and after decompression. */
export interface MessageLimits {
  readonly request: number;
  readonly response: number;
}

/** Bytes of flags and length before a message of gRPC. */
const prefixBytes = 5;
const isCompressed = 1;

/** The encodings of requests, as their headers name them. */
export const acceptedEncodings = "gzip";
export type Encoding = "gzip" | "identity";

/** @returns undefined if it is none of those that are accepted */
export function encodingOf(header = "identity"): Encoding | undefined {
  return header === "gzip" || header === "identity" ? header : undefined;
}

/** Bytes of the longest request body whose message is not too long. */
export function longestBody({ protocol }: Dialect, maxMessageBytes: number): number {
  return protocol === "connect" ? maxMessageBytes : maxMessageBytes + prefixBytes;
}

/** @throws ConnectError */
export function readMessage(
  schema: DescMessage,
  dialect: Dialect,
  body: Buffer,
  encoding: Encoding,
  maxBytes: number,
): Message {
  const { protocol, isJson } = dialect;
  const bytes =
    protocol === "connect"
      ? inflated(body, encoding === "gzip", dialect, maxBytes)
      : unwrapped(body, encoding, dialect, maxBytes);
  if (isJson) {
    try {
      return fromJsonString(schema, bytes.toString(), { ignoreUnknownFields: true });
    } catch (thrown) {
      const reason = thrown instanceof Error ? `: ${thrown.message}` : ".";
      throw faultOf("malformedJson", protocol, reason);
    }
  }
  try {
    return fromBinary(schema, bytes);
  } catch {
    throw faultOf("malformed", protocol);
  }
}

function unwrapped(body: Buffer, encoding: Encoding, dialect: Dialect, maxBytes: number): Buffer {
  const { protocol } = dialect;
  if (body.length === 0) throw faultOf("noMessage", protocol);
  if (body.length < prefixBytes) throw faultOf("malformedEnvelope", protocol);
  const flags = body[0] ?? 0;
  const length = body.readUInt32BE(1);
  if (length > maxBytes) throw tooLong(dialect, maxBytes);
  const end = prefixBytes + length;
  if (flags > isCompressed || body.length < end) throw faultOf("malformedEnvelope", protocol);
  if (body.length > end) throw faultOf("twoMessages", protocol);
  if (flags === isCompressed && encoding !== "gzip") throw faultOf("undeclaredEncoding", protocol);
  return inflated(body.subarray(prefixBytes), flags === isCompressed, dialect, maxBytes);
}

function inflated(bytes: Buffer, isGzip: boolean, dialect: Dialect, maxBytes: number): Buffer {
  if (!isGzip || bytes.length === 0) return bytes;
  try {
    return gunzipSync(bytes, { maxOutputLength: maxBytes });
  } catch (thrown) {
    if (codeOf(thrown) === "ERR_BUFFER_TOO_LARGE") throw tooLong(dialect, maxBytes);
    throw faultOf("malformedGzip", dialect.protocol);
  }
}

export function tooLong({ protocol }: Dialect, maxBytes: number) {
  return faultOf("tooLong", protocol, ` ${maxBytes} bytes.`);
}

/** The body of a response: the message, in the envelope where the protocol has one. */
export function writeMessage(schema: DescMessage, { protocol, isJson }: Dialect, message: Message): Buffer {
  const bytes = isJson ? Buffer.from(toJsonString(schema, message)) : toBinary(schema, message);
  if (protocol !== "connect") return envelope(0, bytes);
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

export function envelope(flags: number, bytes: Uint8Array): Buffer {
  const body = Buffer.allocUnsafe(prefixBytes + bytes.length);
  body.writeUInt8(flags, 0);
  body.writeUInt32BE(bytes.length, 1);
  body.set(bytes, prefixBytes);
  return body;
}
