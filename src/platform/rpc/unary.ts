/**
 * A unary call between its protocol and its method: the whole request, its message, the method, the response. The seam
 * to what runs the method is message and headers in; a message, or an error with details and metadata, out. In the
 * server, call.ts stands behind it.
 */
import {
  create,
  type DescMessage,
  type DescMethodUnary,
  type Message,
  type MessageInitShape,
} from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import type { RpcProtocol } from "../base/observers.ts";
import { deadlineExceeded, type Fault, faultOf } from "./faults.ts";
import type { HttpExchange, Receiver } from "./http-exchange.ts";
import {
  acceptedEncodings,
  type Dialect,
  type Encoding,
  encodingOf,
  longestBody,
  type MessageLimits,
  type ResponseMetadata,
  readMessage,
  sendError,
  sendMessage,
  timeoutOf,
  tooLong,
  writeMessage,
} from "./protocols.ts";

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
export interface UnaryCall extends ResponseMetadata {
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

/** Serves a call whose caller speaks the dialect. @returns a promise that is pending while the method works for it */
export function serveUnary(
  binding: UnaryBinding,
  dialect: Dialect,
  exchange: HttpExchange,
  limits: MessageLimits,
): Promise<void> {
  return new Promise((settle) => new ServedCall(binding, dialect, exchange, limits, settle).begin());
}

class ServedCall implements UnaryCaller, Receiver {
  readonly protocol: RpcProtocol;
  readonly headers: UnaryCaller["headers"];
  readonly timeoutMs: number | undefined;
  readonly metadata: (name: string) => string | undefined;
  readonly #dialect: Dialect;
  readonly #exchange: HttpExchange;
  readonly #limits: MessageLimits;
  readonly #binding: UnaryBinding;
  readonly #settle: () => void;
  readonly #isTimeoutMalformed: boolean;
  /** Undefined if it is not accepted. */
  readonly #encoding: Encoding | undefined;
  readonly #call: UnaryCall;
  #chunks: Buffer[] = [];
  #length = 0;
  #isRunning = false;
  /** Whether the response has been sent, or nobody waits for it. */
  #isOver = false;

  constructor(
    binding: UnaryBinding,
    dialect: Dialect,
    exchange: HttpExchange,
    limits: MessageLimits,
    settle: () => void,
  ) {
    const { headers } = exchange;
    const timeoutMs = timeoutOf(dialect.protocol, headers);
    this.protocol = dialect.protocol;
    this.headers = headers;
    this.metadata = (name) => textOf(headers, name);
    this.#isTimeoutMalformed = Number.isNaN(timeoutMs);
    this.timeoutMs = this.#isTimeoutMalformed ? undefined : timeoutMs;
    this.#encoding = encodingOf(textOf(headers, dialect.encodingHeader));
    this.#dialect = dialect;
    this.#exchange = exchange;
    this.#limits = limits;
    this.#binding = binding;
    this.#settle = settle;
    this.#call = binding.begin(this);
  }

  begin(): void {
    if (this.#isTimeoutMalformed) this.#refuse("malformedTimeout");
    else if (this.timeoutMs === 0) this.#call.stop(deadlineExceeded);
    else if (!this.#encoding) this.#refuse("unknownEncoding");
    else this.#exchange.read(this);
  }

  receive(chunk: Buffer): void {
    if (this.#isOver) return;
    this.#length += chunk.length;
    const { request: maxBytes } = this.#limits;
    if (this.#length <= longestBody(this.#dialect, maxBytes)) this.#chunks.push(chunk);
    else this.#call.stop(() => tooLong(this.#dialect, maxBytes));
  }

  received(): void {
    if (this.#isOver || this.#isRunning || !this.#encoding) return;
    const [first = Buffer.alloc(0)] = this.#chunks;
    const body = this.#chunks.length > 1 ? Buffer.concat(this.#chunks) : first;
    this.#chunks = [];
    const { input } = this.#binding.descriptor;
    try {
      this.#run(readMessage(input, this.#dialect, body, this.#encoding, this.#limits.request));
    } catch (thrown) {
      const fault = thrown instanceof ConnectError ? thrown : faultOf("malformed", this.protocol);
      this.#call.stop(() => fault);
    }
  }

  #run(message: Message): void {
    this.#isRunning = true;
    try {
      this.#call.run(message).then(
        (response) => this.#succeed(response),
        (thrown: unknown) => this.#fail(thrown),
      );
    } catch (thrown) {
      this.#fail(thrown);
    }
  }

  #succeed(response: MessageInitShape<DescMessage>): void {
    this.#settle();
    if (this.#isOver) return;
    const { output } = this.#binding.descriptor;
    let body: Buffer;
    try {
      body = writeMessage(output, this.#dialect, create(output, response));
    } catch (thrown) {
      this.#fail(thrown);
      return;
    }
    if (body.length > this.#limits.response) {
      this.#refuse("responseTooLong", ` ${this.#limits.response} bytes.`);
      return;
    }
    this.#isOver = true;
    this.#call.succeed();
    try {
      sendMessage(this.#exchange, this.#dialect, this.#call, body);
    } catch {
      // A field of the response is not valid.
      this.#exchange.destroy();
    }
  }

  #fail(thrown: unknown): void {
    this.#settle();
    if (!this.#isOver) this.#sendError(this.#call.fail(thrown));
  }

  #refuse(fault: Fault, detail?: string): void {
    this.#call.stop(() => faultOf(fault, this.protocol, detail));
  }

  stopped(reason: ConnectError): void {
    if (!this.#isRunning) this.#settle();
    this.#sendError(reason);
  }

  #sendError(error: ConnectError): void {
    this.#isOver = true;
    const accepted = this.#encoding ? undefined : acceptedEncodings;
    try {
      sendError(this.#exchange, this.#dialect, this.#call, error, accepted);
    } catch {
      this.#exchange.destroy();
    }
  }

  closed(): void {
    if (!this.#isOver) this.#call.cancel();
  }
}

function textOf(headers: NodeJS.Dict<string | string[]>, name: string): string | undefined {
  const value = headers[name];
  return typeof value === "string" && !name.endsWith("-bin") ? value : undefined;
}
