/** The errors of calls that are no method's own: what callers do wrong by their protocol, and calls that are ended. */
import { Code, ConnectError } from "@connectrpc/connect";
import type { ServiceError } from "../base/errors.ts";
import type { RpcProtocol } from "../base/observers.ts";

/** Logged and counted like any other error of a call. */
const faults = {
  malformed: [Code.Internal, "The request message cannot be decoded."],
  malformedJson: [Code.InvalidArgument, "The request message cannot be decoded"],
  malformedEnvelope: [Code.Internal, "The request is not one whole message with its prefix of five bytes."],
  noMessage: [Code.Unimplemented, "The method takes one message, and the request has none."],
  twoMessages: [Code.Unimplemented, "The method takes one message, and the request has more."],
  tooLong: [Code.ResourceExhausted, "The request message is longer than the permitted"],
  responseTooLong: [Code.ResourceExhausted, "The response message is longer than the permitted"],
  unknownEncoding: [Code.Unimplemented, "The request has an encoding other than gzip."],
  undeclaredEncoding: [Code.Internal, "The request message is compressed, and its encoding is not stated."],
  malformedGzip: [Code.Internal, "The request message cannot be decompressed."],
  malformedTimeout: [Code.Internal, "The timeout is not valid."],
} as const;

export type Fault = keyof typeof faults;

/** What is the caller's own fault by Connect, and by gRPC an error of the protocol. */
const ofCaller: ReadonlySet<Fault> = new Set(["malformedGzip", "malformedTimeout"]);

/** @param detail what follows the message */
export function faultOf(fault: Fault, protocol: RpcProtocol, detail = ""): ConnectError {
  const [code, message] = faults[fault];
  const isOfCaller = protocol === "connect" && ofCaller.has(fault);
  // Half a surrogate pair cannot be percent-encoded: as a status message it would break the response.
  const text = `${message}${detail}`.toWellFormed();
  return new ConnectError(text, isOfCaller ? Code.InvalidArgument : code);
}

/** Characters of a status message after which it names no further places: clients take some 8 KB of trailers. */
const mostCharacters = 2000;

/** Its message names the places that are invalid: a status has no other room for them. */
export function connectError({
  message,
  kind,
  errors = [],
  retryAfterSeconds: wait,
}: ServiceError): ConnectError {
  const metadata = wait === undefined ? {} : { "retry-after": `${wait}` };
  let text = message;
  for (const { pointer, message: problem } of errors.slice(1)) {
    if (text.length > mostCharacters) break;
    text += ` Also: ${pointer} ${problem}.`;
  }
  return new ConnectError(text.toWellFormed(), Code[kind.grpc], metadata);
}

export function deadlineExceeded(): ConnectError {
  return new ConnectError("The deadline has passed.", Code.DeadlineExceeded);
}

export function cancelled(): ConnectError {
  return new ConnectError("The call was cancelled.", Code.Canceled);
}

export function shuttingDown(): ConnectError {
  return new ConnectError("The server is shutting down.", Code.Unavailable);
}
