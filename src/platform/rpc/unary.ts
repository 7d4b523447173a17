/** A unary call of every protocol: the whole request, its message, the method, the response. */
import { create, type DescMessage, type Message, type MessageInitShape } from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import { within } from "../base/tracing.ts";
import { ActiveCall, type RpcPipeline } from "./call.ts";
import { cancelled, deadlineExceeded, type Fault, faultOf } from "./faults.ts";
import type { HttpExchange, Receiver } from "./http-exchange.ts";
import {
  acceptedEncodings,
  type Dialect,
  type Encoding,
  encodingOf,
  type Fields,
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
import type { RpcCall, UnaryMethod } from "./service.ts";

/**
 * Milliseconds before its deadline within which a call whose caller goes counts as one whose deadline has passed: the
 * caller counts from sending it, and the deadline is counted here from the start of its handling, which is later.
 */
const deadlineLeadMs = 50;

/** Serves a call whose caller speaks the dialect. @returns a promise that is pending while the method works for it */
export function serveUnary(
  pipeline: RpcPipeline,
  method: UnaryMethod,
  dialect: Dialect,
  exchange: HttpExchange,
  limits: MessageLimits,
): Promise<void> {
  return new Promise((settle) =>
    pipeline.begin(new UnaryCall(pipeline, method, dialect, exchange, limits, settle)).begin(),
  );
}

export class UnaryCall extends ActiveCall implements Receiver, ResponseMetadata {
  override readonly isStream = false;
  /** All that came: lower-case names, values as they are on the wire. */
  readonly headers: HttpExchange["headers"];
  /** The caller's own timeout in milliseconds, at most an hour; undefined if it has set none. */
  readonly timeoutMs: number | undefined;
  responseHeaders: Fields;
  responseTrailers: Fields | undefined;
  readonly #dialect: Dialect;
  readonly #exchange: HttpExchange;
  readonly #limits: MessageLimits;
  readonly #method: UnaryMethod;
  readonly #settle: () => void;
  readonly #isTimeoutMalformed: boolean;
  /** Undefined if it is not accepted. */
  readonly #encoding: Encoding | undefined;
  #chunks: Buffer[] = [];
  #length = 0;
  #isRunning = false;

  constructor(
    pipeline: RpcPipeline,
    method: UnaryMethod,
    dialect: Dialect,
    exchange: HttpExchange,
    limits: MessageLimits,
    settle: () => void,
  ) {
    const { protocol } = dialect;
    const { headers } = exchange;
    const asked = timeoutOf(protocol, headers);
    const isTimeoutMalformed = Number.isNaN(asked);
    const timeoutMs = isTimeoutMalformed ? undefined : asked;
    const origin = { protocol, metadata: (name: string) => textOf(headers, name) };
    super(method.descriptor, origin, timeoutMs ?? pipeline.options.defaultDeadlineMs, pipeline);
    this.headers = headers;
    this.timeoutMs = timeoutMs;
    this.responseHeaders = { "x-request-id": this.context.requestId };
    this.#isTimeoutMalformed = isTimeoutMalformed;
    this.#encoding = encodingOf(textOf(headers, dialect.encodingHeader));
    this.#dialect = dialect;
    this.#exchange = exchange;
    this.#limits = limits;
    this.#method = method;
    this.#settle = settle;
  }

  begin(): void {
    if (this.#isTimeoutMalformed) this.#refuse("malformedTimeout");
    else if (this.timeoutMs === 0) this.stop(deadlineExceeded);
    else if (!this.#encoding) this.#refuse("unknownEncoding");
    else if (this.#method.admits) this.#admit(this.#method.admits);
    else this.#exchange.read(this);
  }

  #admit(admits: (call: RpcCall) => Promise<void>): void {
    const admit = () => admits(this);
    (this.span ? within(this.span, admit) : admit()).then(
      () => this.#exchange.read(this),
      (thrown: unknown) => this.#fail(thrown),
    );
  }

  receive(chunk: Buffer): void {
    if (this.finished) return;
    this.#length += chunk.length;
    const { request: maxBytes } = this.#limits;
    if (this.#length <= longestBody(this.#dialect, maxBytes)) this.#chunks.push(chunk);
    else this.stop(() => tooLong(this.#dialect, maxBytes));
  }

  received(): void {
    if (this.finished || this.#isRunning || !this.#encoding) return;
    const [first = Buffer.alloc(0)] = this.#chunks;
    const body = this.#chunks.length > 1 ? Buffer.concat(this.#chunks) : first;
    this.#chunks = [];
    try {
      this.#run(readMessage(this.#method, this.#dialect, body, this.#encoding, this.#limits.request));
    } catch (thrown) {
      const fault = thrown instanceof ConnectError ? thrown : faultOf("malformed", this.#dialect.protocol);
      this.stop(() => fault);
    }
  }

  #run(message: Message): void {
    this.#isRunning = true;
    const run = () => this.#method.run(message, this);
    try {
      (this.span ? within(this.span, run) : run()).then(
        (response) => this.#succeed(response),
        (thrown: unknown) => this.#fail(thrown),
      );
    } catch (thrown) {
      this.#fail(thrown);
    }
  }

  #succeed(response: MessageInitShape<DescMessage>): void {
    this.#settle();
    if (this.finished) return;
    const { output } = this.#method.descriptor;
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
    this.succeed();
    try {
      sendMessage(this.#exchange, this.#dialect, this, body);
    } catch {
      // A field of the response is not valid.
      this.#exchange.destroy();
    }
  }

  #fail(thrown: unknown): void {
    this.#settle();
    if (!this.finished) this.#sendError(this.fail(thrown));
  }

  #refuse(fault: Fault, detail?: string): void {
    this.stop(() => faultOf(fault, this.#dialect.protocol, detail));
  }

  protected override interrupted(reason: ConnectError): void {
    if (!this.#isRunning) this.#settle();
    this.#sendError(reason);
  }

  #sendError(error: ConnectError): void {
    const accepted = this.#encoding ? undefined : acceptedEncodings;
    try {
      sendError(this.#exchange, this.#dialect, this, error, accepted);
    } catch {
      this.#exchange.destroy();
    }
  }

  closed(): void {
    if (this.finished) return;
    const isDue = this.timeoutMs !== undefined && this.deadline - performance.now() <= deadlineLeadMs;
    this.stop(isDue ? deadlineExceeded : cancelled);
  }
}

function textOf(headers: NodeJS.Dict<string | string[]>, name: string): string | undefined {
  const value = headers[name];
  return typeof value === "string" && !name.endsWith("-bin") ? value : undefined;
}
