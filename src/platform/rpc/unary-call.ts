/**
 * The seam between the protocols and what runs a unary method: message and headers in; a message, or an error with
 * details and metadata, out. In the server, call.ts stands behind it.
 */
import type { DescMessage, DescMethodUnary, Message, MessageInitShape } from "@bufbuild/protobuf";
import type { ConnectError } from "@connectrpc/connect";
import type { RpcProtocol } from "../base/observers.ts";

/** Header or trailer fields: lower-case names, values as they are on the wire (`-bin` in base64). */
export type Fields = Readonly<Record<string, string | string[]>>;

/** The caller of a unary method, as its protocol presents it. */
export interface UnaryCaller {
  readonly protocol: RpcProtocol;
  /** All that came: lower-case names, values as they are on the wire. */
  readonly headers: NodeJS.Dict<string | string[]>;
  /** Value of a header (lower case), where it is text: `-bin` never is. */
  readonly metadata: (name: string) => string | undefined;
  /** The caller's own timeout in milliseconds, at most an hour; undefined if it has set none. */
  readonly timeoutMs: number | undefined;
  /** Sends the error as the response. Called once at most, and not after the call has succeeded or failed. */
  stopped(reason: ConnectError): void;
}

/** One call. It ends once: by `succeed`, `fail`, `stop` or `cancel`, whichever is first. */
export interface UnaryCall {
  /** Fields of the response, whatever it is; read when it is sent. */
  readonly responseHeaders: Fields;
  /** Trailing metadata of the response, whatever it is; read when it is sent. */
  readonly responseTrailers?: Fields | undefined;
  /** Runs the method, once. Rejects, or throws, with any value. */
  run(request: Message): Promise<MessageInitShape<DescMessage>>;
  /** The response is encoded and about to be sent. */
  succeed(): void;
  /** The method has failed, or its response could not be encoded. @returns the error for the caller */
  fail(thrown: unknown): ConnectError;
  /** Ends the call from outside, and the caller is told by `stopped`. No effect once the call has ended. */
  stop(makeReason: () => ConnectError): void;
  /** The caller has gone. No effect once the call has ended. */
  cancel(): void;
}

/** A unary method as the protocols serve it. */
export interface UnaryBinding {
  readonly descriptor: DescMethodUnary;
  /** Begins a call, before anything of its message is read. */
  begin(caller: UnaryCaller): UnaryCall;
}
