/** A unary call between its protocol and its method: the whole request, its message, the method, the response. */
import { create, type DescMessage, type Message, type MessageInitShape } from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import type { RpcProtocol } from "../base/observers.ts";
import { deadlineExceeded } from "./call.ts";
import { type Dialect, timeoutOf } from "./dialects.ts";
import { type Fault, faultOf } from "./faults.ts";
import type { HttpExchange, Receiver } from "./http-exchange.ts";
import {
  acceptedEncodings,
  type Encoding,
  encodingOf,
  longestBody,
  type MessageLimits,
  readMessage,
  tooLong,
  writeMessage,
} from "./messages.ts";
import { sendError, sendMessage } from "./responses.ts";
import type { UnaryBinding, UnaryCall, UnaryCaller } from "./unary-call.ts";

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
  readonly timeoutMs: number | undefined;
  readonly metadata: (name: string) => string | undefined;
  readonly #dialect: Dialect;
  readonly #exchange: HttpExchange;
  readonly #limits: MessageLimits;
  readonly #binding: UnaryBinding;
  readonly #longestBody: number;
  readonly #settle: () => void;
  readonly #isTimeoutMalformed: boolean;
  /** Undefined if it is not accepted. */
  readonly #encoding: Encoding | undefined;
  readonly #call: UnaryCall;
  /** The first chunk of the body: most have no other. */
  #body: Buffer | undefined;
  #further: Buffer[] | undefined;
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
    this.metadata = (name) => textOf(headers, name);
    const timeoutMs = timeoutOf(dialect.protocol, headers);
    this.#isTimeoutMalformed = Number.isNaN(timeoutMs);
    this.timeoutMs = this.#isTimeoutMalformed ? undefined : timeoutMs;
    this.#encoding = encodingOf(textOf(headers, dialect.encodingHeader));
    this.#dialect = dialect;
    this.#exchange = exchange;
    this.#limits = limits;
    this.#binding = binding;
    this.#longestBody = longestBody(dialect, limits.request);
    this.#settle = settle;
    this.#call = binding.begin(this);
  }

  get protocol(): RpcProtocol {
    return this.#dialect.protocol;
  }

  get headers(): NodeJS.Dict<string | string[]> {
    return this.#exchange.headers;
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
    if (this.#length > this.#longestBody) this.#call.stop(() => tooLong(this.#dialect, this.#limits.request));
    else if (!this.#body) this.#body = chunk;
    else if (this.#further) this.#further.push(chunk);
    else this.#further = [this.#body, chunk];
  }

  received(): void {
    if (this.#isOver || this.#isRunning || !this.#encoding) return;
    const body = this.#further ? Buffer.concat(this.#further) : (this.#body ?? Buffer.alloc(0));
    this.#body = undefined;
    this.#further = undefined;
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
