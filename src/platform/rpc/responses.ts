/** The responses of RPC as each protocol writes them. */
import type { OutgoingHttpHeaders } from "node:http2";
import type { ConnectError } from "@connectrpc/connect";
import { codeToHttpStatus, codeToString, errorToJsonBytes } from "@connectrpc/connect/protocol-connect";
import { setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import type { Dialect } from "./dialects.ts";
import type { HttpExchange } from "./http-exchange.ts";
import { envelope } from "./messages.ts";
import type { Fields, UnaryCall } from "./unary-call.ts";

type Metadata = Pick<UnaryCall, "responseHeaders" | "responseTrailers">;

/** Flag of the envelope with the trailers of gRPC-Web. */
const trailersFlag = 0x80;
/** Flag of the last envelope of a stream of Connect. */
const endFlag = 2;

const ok: OutgoingHttpHeaders = { "grpc-status": "0" };
const okEnvelope = trailersEnvelope(ok);

/** @param body the message as `writeMessage` writes it */
export function sendMessage(
  exchange: HttpExchange,
  { protocol, contentType }: Dialect,
  { responseHeaders, responseTrailers }: Metadata,
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
  { responseHeaders, responseTrailers }: Metadata,
  error: ConnectError,
  accepted?: string,
): void {
  const headers = { ...responseHeaders, ...(accepted && { [dialect.acceptEncodingHeader]: accepted }) };
  if (dialect.protocol === "grpc") {
    sendTrailersOnly(exchange, dialect, { ...headers, ...responseTrailers }, error);
  } else if (dialect.protocol === "grpc-web") {
    const end = trailersEnvelope({ ...responseTrailers, ...statusOf(error) });
    exchange.send(200, { "content-type": dialect.contentType, ...headers }, end);
  } else {
    sendJsonError(
      exchange,
      codeToHttpStatus(error.code),
      { ...headers, ...asHeaders(responseTrailers) },
      error,
    );
  }
}

/** An error of gRPC or gRPC-Web as headers alone, which are headers and trailers at once. */
export function sendTrailersOnly(
  exchange: HttpExchange,
  { contentType }: Dialect,
  headers: Fields,
  error: ConnectError,
): void {
  exchange.send(200, { "content-type": contentType, ...headers, ...statusOf(error) });
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

/** An error of a stream of Connect that has sent nothing else. */
export function sendStreamError(
  exchange: HttpExchange,
  contentType: string,
  headers: Fields,
  error: ConnectError,
): void {
  const end = { error: { code: codeToString(error.code), message: error.rawMessage } };
  const body = envelope(endFlag, Buffer.from(JSON.stringify(end)));
  exchange.send(
    200,
    { "content-type": contentType, ...headers, ...Object.fromEntries(error.metadata) },
    body,
  );
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
  return envelope(trailersFlag, Buffer.from(lines.join("")));
}

/** Trailers of a unary response of Connect, which are headers. */
function asHeaders(trailers: Fields = {}): OutgoingHttpHeaders {
  return Object.fromEntries(Object.entries(trailers).map(([name, value]) => [`trailer-${name}`, value]));
}
