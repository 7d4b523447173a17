/** Requests over a connection, and what became of them. */
import type {
  ClientStream,
  Connect,
  Connection,
  ConnectionListener,
  RequestHead,
  ResponseFields,
  StreamEnd,
  StreamListener,
} from "../../../src/platform/http2/connection.ts";

/** The result of a request. */
export interface Result {
  /** Undefined: no response came. */
  readonly status: number | undefined;
  readonly fields: ResponseFields | undefined;
  readonly body: string;
  readonly end: StreamEnd;
}

export interface Request {
  readonly stream: ClientStream;
  readonly result: Promise<Result>;
}

/** A connection that the test follows. */
export interface Followed {
  readonly connection: Connection;
  /** The peer's limits on streams, in the order in which they came. */
  readonly limits: number[];
  readonly opened: Promise<void>;
  readonly retired: Promise<void>;
  readonly closed: Promise<void>;
}

export function follow(connect: Connect, origin: string, ca?: string): Followed {
  const opened = Promise.withResolvers<void>();
  const retired = Promise.withResolvers<void>();
  const closed = Promise.withResolvers<void>();
  const limits: number[] = [];
  const listener: ConnectionListener = {
    onSettings(maxStreams) {
      limits.push(maxStreams);
      opened.resolve();
    },
    onRetired: retired.resolve,
    onClosed: closed.resolve,
  };
  const connection = connect({ origin, ca }, listener);
  return { connection, limits, opened: opened.promise, retired: retired.promise, closed: closed.promise };
}

export const shared = [":method", "POST", ":scheme", "http", ":authority", "test"];

export function post(
  connection: Connection,
  head: Partial<RequestHead> = {},
  body: string | Uint8Array = "",
): Request {
  const { promise, resolve } = Promise.withResolvers<Result>();
  let status: number | undefined;
  let fields: ResponseFields | undefined;
  const parts: Buffer[] = [];
  const listener: StreamListener = {
    onResponse(code, received) {
      if (status !== undefined) throw new Error("A second response came.");
      status = code;
      fields = received;
    },
    onData: (part) => void parts.push(part),
    onEnd: (end) => resolve({ status, fields, body: Buffer.concat(parts).toString(), end }),
  };
  const stream = connection.request({ path: "/", shared, ...head }, body, listener);
  return { stream, result: promise };
}
