/** What callers do wrong by their protocol, and the status of each. */
import { Code, ConnectError } from "@connectrpc/connect";
import type { RpcProtocol } from "../base/observers.ts";

interface Status {
  /** gRPC-Web has the statuses of gRPC. */
  readonly grpc: Code;
  readonly connect: Code;
  readonly message: string;
}

const both = (code: Code, message: string): Status => ({ grpc: code, connect: code, message });

/** The faults of a call. They are logged and counted like any other error of it. */
const faults = {
  malformed: both(Code.Internal, "The request message cannot be decoded."),
  malformedJson: both(Code.InvalidArgument, "The request message cannot be decoded"),
  malformedEnvelope: both(
    Code.Internal,
    "The request is not one whole message with its prefix of five bytes.",
  ),
  noMessage: both(Code.Unimplemented, "The method takes one message, and the request has none."),
  twoMessages: both(Code.Unimplemented, "The method takes one message, and the request has more."),
  tooLong: both(Code.ResourceExhausted, "The request message is longer than the permitted"),
  responseTooLong: both(Code.ResourceExhausted, "The response message is longer than the permitted"),
  unknownEncoding: both(Code.Unimplemented, "The request has an encoding other than gzip."),
  undeclaredEncoding: both(
    Code.Internal,
    "The request message is compressed, and its encoding is not stated.",
  ),
  malformedGzip: {
    grpc: Code.Internal,
    connect: Code.InvalidArgument,
    message: "The request message cannot be decompressed.",
  },
  malformedTimeout: {
    grpc: Code.Internal,
    connect: Code.InvalidArgument,
    message: "The timeout is not valid.",
  },
} as const satisfies Record<string, Status>;

export type Fault = keyof typeof faults;

/** @param detail what follows the message */
export function faultOf(fault: Fault, protocol: RpcProtocol, detail = ""): ConnectError {
  const { message, grpc, connect } = faults[fault];
  // Half a surrogate pair cannot be percent-encoded.
  return new ConnectError(`${message}${detail}`.toWellFormed(), protocol === "connect" ? connect : grpc);
}

/** The HTTP statuses of requests that are no calls, whatever their protocol. */
export const noCall = { wrongVerb: 405, otherContentType: 415, unknownPath: 404 } as const;
