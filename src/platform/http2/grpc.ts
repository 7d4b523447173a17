/** Unary calls of gRPC over HTTP/2 (gRPC's PROTOCOL-HTTP2). Messages are compressed in neither direction. */
import type { Fields, RequestHead } from "./connection.ts";
import type { ExchangeResult, PeerResponse } from "./exchange.ts";
import type { Http2Pool } from "./pool.ts";

/** The names of the statuses, by their numbers. */
const statuses = [
  ...["OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"],
  ...["PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE"],
  ...["UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"],
];
/** The statuses of responses that name none, by the status of HTTP; UNKNOWN for others. */
const httpStatuses: Readonly<Record<number, string>> = {
  400: "INTERNAL",
  401: "UNAUTHENTICATED",
  403: "PERMISSION_DENIED",
  404: "UNIMPLEMENTED",
  429: "UNAVAILABLE",
  502: "UNAVAILABLE",
  503: "UNAVAILABLE",
  504: "UNAVAILABLE",
};
/** Bytes before a message: whether it is compressed, and its length. */
const prefixBytes = 5;

/** The call has failed. */
export class GrpcError extends Error {
  override readonly name = "GrpcError";
  /** Such as UNAVAILABLE. */
  readonly status: string;

  constructor(status: string, detail: string) {
    super(`${statuses.indexOf(status)} ${status}: ${detail}`);
    this.status = status;
  }
}

/**
 * The fields of every call, for `shared` of a request's head.
 * @param timeoutMs at most 99,999,999
 * @param metadata names in lower case and values
 */
export function grpcFields(origin: string, timeoutMs: number, metadata: Fields = []): Fields {
  const { protocol, host } = new URL(origin);
  return [
    ...[":method", "POST", ":scheme", protocol.slice(0, -1), ":authority", host],
    ...["te", "trailers", "content-type", "application/grpc"],
    ...["grpc-timeout", `${timeoutMs}m`, ...metadata],
  ];
}

/**
 * Calls a method. @param head its path, and fields as from {@link grpcFields}
 * @returns the message of a response with `:status` 200, `grpc-status` 0 and exactly one whole message
 * @throws GrpcError if there is none
 */
export async function unary(pool: Http2Pool, head: RequestHead, message: Uint8Array): Promise<Buffer> {
  const body = Buffer.alloc(prefixBytes + message.length);
  body.writeUInt32BE(message.length, 1);
  body.set(message, prefixBytes);
  return messageIn(await pool.request(head, body));
}

function messageIn(response: ExchangeResult): Buffer {
  if (!response.responded) {
    throw new GrpcError(response.cause === "timeout" ? "DEADLINE_EXCEEDED" : "UNAVAILABLE", response.reason);
  }
  if (!response.isComplete) throw new GrpcError("UNAVAILABLE", "the response broke off");
  const body = response.body();
  const field = (name: string) =>
    response.trailer(name) ?? (body.length === 0 ? response.header(name) : undefined);
  const status = statusOf(response, field("grpc-status"));
  if (status !== "OK") {
    throw new GrpcError(
      status,
      decoded(field("grpc-message")) ?? `a response with status ${response.status}`,
    );
  }
  const isOneMessage =
    body.length >= prefixBytes && body[0] === 0 && body.readUInt32BE(1) === body.length - prefixBytes;
  if (!isOneMessage) throw new GrpcError("INTERNAL", "the response is not exactly one whole message");
  return body.subarray(prefixBytes);
}

function statusOf(response: PeerResponse, number: string | undefined): string {
  const isGrpc = /^application\/grpc(?:[+;]|$)/.test(response.header("content-type") ?? "");
  const status = isGrpc && number !== undefined ? statusWith(number) : undefined;
  if (status !== undefined && (status !== "OK" || response.status === 200)) return status;
  return httpStatuses[response.status] ?? "UNKNOWN";
}

function statusWith(number: string): string {
  return (/^(?:0|[1-9]\d?)$/.test(number) ? statuses[Number(number)] : undefined) ?? "UNKNOWN";
}

/** A `grpc-message` is percent-encoded; one that is not is left as it is. */
function decoded(text: string | undefined): string | undefined {
  try {
    return text && decodeURIComponent(text);
  } catch {
    return text;
  }
}
