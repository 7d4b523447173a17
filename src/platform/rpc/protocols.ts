/**
 * What each protocol of unary calls has on the wire: content types, headers, timeouts; messages with their formats,
 * envelopes and gzip; errors with their statuses and trailers.
 */
import type { OutgoingHttpHeaders } from "node:http2";
import { gunzipSync } from "node:zlib";
import {
  type DescMessage,
  fromBinary,
  fromJsonString,
  type Message,
  toBinary,
  toJsonString,
} from "@bufbuild/protobuf";
import type { ConnectError } from "@connectrpc/connect";
import { codeToHttpStatus, errorToJsonBytes } from "@connectrpc/connect/protocol-connect";
import { setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import { codeOf } from "../base/error-code.ts";
import type { RpcProtocol } from "../base/observers.ts";
import { faultOf } from "./faults.ts";
import type { HttpExchange } from "./http-exchange.ts";
import type { UnaryMethod } from "./service.ts";

/** A protocol with a format of its messages. */
export interface Dialect {
  readonly protocol: RpcProtocol;
  /** Of a response. */
  readonly contentType: string;
  readonly isJson: boolean;
  readonly encodingHeader: string;
  readonly acceptEncodingHeader: string;
}

const grpcHeaders = { encodingHeader: "grpc-encoding", acceptEncodingHeader: "grpc-accept-encoding" };
const connectHeaders = { encodingHeader: "content-encoding", acceptEncodingHeader: "accept-encoding" };

function of(protocol: RpcProtocol, contentType: string): Dialect {
  const headers = protocol === "connect" ? connectHeaders : grpcHeaders;
  return { protocol, contentType, isJson: contentType.endsWith("json"), ...headers };
}

const dialects = [
  ...[of("grpc", "application/grpc+proto"), of("grpc-web", "application/grpc-web+proto")],
  ...[of("grpc", "application/grpc+json"), of("grpc-web", "application/grpc-web+json")],
  ...[of("connect", "application/proto"), of("connect", "application/json")],
];
/** A type of gRPC alone is that of proto. */
const byContentType: ReadonlyMap<string, Dialect> = new Map(
  dialects.flatMap((dialect): [string, Dialect][] => [
    [dialect.contentType, dialect],
    [dialect.contentType.replace("+proto", ""), dialect],
  ]),
);

/** Undefined for all that is not served: streams of Connect, gRPC-Web's text mode, formats but proto and JSON. */
export function dialectOf(contentType: string | undefined): Dialect | undefined {
  if (contentType === undefined) return undefined;
  const plain = () => contentType.toLowerCase().replace(/ ?; ?charset=utf-?8$/, "");
  return byContentType.get(contentType) ?? byContentType.get(plain());
}

/** Milliseconds of the longest timeout of a unary call. Node's timers overflow after 24 days. */
const longestMs = 3_600_000;

const units: NodeJS.Dict<number> = { H: 3_600_000, M: 60_000, S: 1_000, m: 1, u: 1e-3, n: 1e-6 };

type Header = string | string[] | undefined;

function grpcTimeout(header: Header): number | undefined {
  if (header === undefined) return undefined;
  const [, amount, unit = ""] = /^(\d{1,8})([HMSmun])$/.exec(String(header)) ?? [];
  return Number(amount) * (units[unit] ?? Number.NaN);
}

function connectTimeout(header: Header): number | undefined {
  if (header === undefined) return undefined;
  return /^\d{1,10}$/.test(String(header)) ? Number(header) : Number.NaN;
}

/** The timeout of a unary call in milliseconds; undefined if there is none, NaN if it is malformed. */
export function timeoutOf(protocol: string, headers: NodeJS.Dict<string | string[]>): number | undefined {
  const timeoutMs =
    protocol === "connect"
      ? connectTimeout(headers["connect-timeout-ms"])
      : grpcTimeout(headers["grpc-timeout"]);
  return timeoutMs === undefined ? undefined : Math.min(timeoutMs, longestMs);
}

/** Removes from the headers of a stream the timeouts that are longer than those of unary calls: it has none then. */
export function dropLongTimeouts(headers: NodeJS.Dict<string | string[]>): void {
  if ((grpcTimeout(headers["grpc-timeout"]) ?? 0) > longestMs) delete headers["grpc-timeout"];
  if ((connectTimeout(headers["connect-timeout-ms"]) ?? 0) > longestMs) delete headers["connect-timeout-ms"];
}

/** Bytes of messages, before and after decompression. */
export interface MessageLimits {
  readonly request: number;
  readonly response: number;
}

/** Bytes of flags and length before a message of gRPC. */
const prefixBytes = 5;
const isCompressed = 1;
/** The envelope of gRPC-Web whose content is the trailers. */
const isTrailers = 0x80;

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
  { descriptor: { input }, refusesUnknownMembers }: UnaryMethod,
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
      return fromJsonString(input, bytes.toString(), { ignoreUnknownFields: !refusesUnknownMembers });
    } catch (thrown) {
      const reason = thrown instanceof Error ? `: ${thrown.message}` : ".";
      throw faultOf("malformedJson", protocol, reason);
    }
  }
  try {
    return fromBinary(input, bytes);
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

function envelope(flags: number, bytes: Uint8Array): Buffer {
  const body = Buffer.allocUnsafe(prefixBytes + bytes.length);
  body.writeUInt8(flags, 0);
  body.writeUInt32BE(bytes.length, 1);
  body.set(bytes, prefixBytes);
  return body;
}

/** Header or trailer fields: lower-case names, values as they are on the wire (`-bin` in base64). */
export type Fields = Readonly<Record<string, string | string[]>>;

/** Fields of a response, whatever it is; read when it is sent. */
export interface ResponseMetadata {
  readonly responseHeaders: Fields;
  readonly responseTrailers?: Fields | undefined;
}

const ok: OutgoingHttpHeaders = { "grpc-status": "0" };
const okEnvelope = trailersEnvelope(ok);

/** @param body the message as `writeMessage` writes it */
export function sendMessage(
  exchange: HttpExchange,
  { protocol, contentType }: Dialect,
  { responseHeaders, responseTrailers }: ResponseMetadata,
  body: Buffer,
): void {
  const headers = { "content-type": contentType, ...responseHeaders };
  if (protocol === "grpc") {
    exchange.send(200, headers, body, responseTrailers ? { ...responseTrailers, ...ok } : ok);
  } else if (protocol === "grpc-web") {
    const end = responseTrailers ? trailersEnvelope({ ...responseTrailers, ...ok }) : okEnvelope;
    exchange.send(200, headers, Buffer.concat([body, end]));
  } else exchange.send(200, { ...headers, ...asHeaders(responseTrailers) }, body);
}

/** @param accepted the encodings that the server takes, where the error is one of the request's encoding */
export function sendError(
  exchange: HttpExchange,
  dialect: Dialect,
  { responseHeaders, responseTrailers }: ResponseMetadata,
  error: ConnectError,
  accepted?: string,
): void {
  const headers = { ...responseHeaders, ...(accepted && { [dialect.acceptEncodingHeader]: accepted }) };
  if (dialect.protocol === "connect") {
    const fields = { ...headers, ...asHeaders(responseTrailers) };
    sendJsonError(exchange, codeToHttpStatus(error.code), fields, error);
    return;
  }
  const fields = { "content-type": dialect.contentType, ...headers };
  const trailers = { ...responseTrailers, ...statusOf(error) };
  // Headers alone are headers and trailers at once. Pages could not read those.
  if (dialect.protocol === "grpc") exchange.send(200, { ...fields, ...trailers });
  else exchange.send(200, fields, trailersEnvelope(trailers));
}

/** The form of an error of a unary call of Connect, and of all that is no call of any protocol. */
export function sendJsonError(
  exchange: HttpExchange,
  status: number,
  headers: OutgoingHttpHeaders,
  error: ConnectError,
): void {
  const body = Buffer.from(errorToJsonBytes(error, undefined));
  const fields = { "content-type": "application/json", ...headers, ...Object.fromEntries(error.metadata) };
  exchange.send(status, fields, body);
}

function statusOf(error: ConnectError): OutgoingHttpHeaders {
  const fields = Object.fromEntries(setTrailerStatus(new Headers(), error));
  // Connect's library encodes more than gRPC has encoded, and clients of grpc-js then show the rest as it is.
  if (error.rawMessage !== "") fields["grpc-message"] = percentEncoded(error.rawMessage);
  return fields;
}

/** All but printable ASCII, and the percent sign (gRPC's PROTOCOL-HTTP2, Percent-Encoded). */
function percentEncoded(text: string): string {
  return text.replaceAll(/[^ -$&-~]+/gu, encodeURIComponent);
}

function trailersEnvelope(trailers: OutgoingHttpHeaders): Buffer {
  const lines = Object.entries(trailers).flatMap(([name, values]) =>
    [values].flat().map((value) => `${name}: ${value}\r\n`),
  );
  return envelope(isTrailers, Buffer.from(lines.join("")));
}

/** Trailers of a unary response of Connect, which are headers. */
function asHeaders(trailers: Fields = {}): OutgoingHttpHeaders {
  return Object.fromEntries(Object.entries(trailers).map(([name, value]) => [`trailer-${name}`, value]));
}
