/** The responses of RPC as each protocol writes them. */
import type { OutgoingHttpHeaders } from "node:http2";
import type { ConnectError } from "@connectrpc/connect";
import { codeToHttpStatus, errorToJsonBytes } from "@connectrpc/connect/protocol-connect";
import { setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import type { Dialect } from "./dialects.ts";
import type { HttpExchange } from "./http-exchange.ts";
import { envelope } from "./messages.ts";
import type { Fields, UnaryCall } from "./unary-call.ts";

type Metadata = Pick<UnaryCall, "responseHeaders" | "responseTrailers">;

/** Flag of the envelope with the trailers of gRPC-Web. */
const trailersFlag = 0x80;

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
  return envelope(trailersFlag, Buffer.from(lines.join("")));
}

/** Trailers of a unary response of Connect, which are headers. */
function asHeaders(trailers: Fields = {}): OutgoingHttpHeaders {
  return Object.fromEntries(Object.entries(trailers).map(([name, value]) => [`trailer-${name}`, value]));
}
