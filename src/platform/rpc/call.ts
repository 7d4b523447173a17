/**
 * The pipeline around every method, for every protocol: a request context, a deadline, the method, its errors as
 * statuses, metrics and the log; and the end of calls when the server shuts down. The protocols only translate between
 * this and the wire.
 */
import type { DescMessage, DescMethod, Message, MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { codeToString } from "@connectrpc/connect/protocol-connect";
import type { Logger } from "pino";
import { Deadlines, type Timed } from "../base/deadlines.ts";
import { asServiceError, ErrorKinds, type ServiceError } from "../base/errors.ts";
import type { RpcObserver, RpcProtocol } from "../base/observers.ts";
import { RequestContext } from "../base/request-context.ts";
import { isTracing, type Span, within } from "../base/tracing.ts";
import { beginCallSpan, endCallSpan } from "./call-span.ts";
import type { RpcCall, RpcService, UnaryMethod } from "./service.ts";
import type { UnaryCall, UnaryCaller } from "./unary-call.ts";

export interface CallOrigin {
  readonly protocol: RpcProtocol;
  readonly metadata: (name: string) => string | undefined;
  /** A new one is made if there is none yet. */
  readonly context?: RequestContext | undefined;
}

export interface RpcPipelineOptions {
  readonly logger: Logger;
  readonly observer: RpcObserver;
  /** The timeout of a unary call whose caller gave none, in milliseconds; 10,000 unless given. */
  readonly defaultDeadlineMs?: number;
  /** False for probes, which come all the time and tell nothing of anybody's request. */
  readonly isTraced?: boolean;
}

/** What the calls of a server have in common. */
export interface CallOptions extends Required<RpcPipelineOptions> {
  /** Called once for each call, when it has ended. */
  readonly ended: (call: ActiveCall) => void;
}

/** The active calls of a server. */
export class RpcPipeline {
  /** For the calls that are begun here. */
  readonly options: CallOptions;
  readonly #active = new Deadlines<ActiveCall>(10);
  #isDraining = false;

  constructor({ logger, observer, defaultDeadlineMs = 10_000, isTraced = true }: RpcPipelineOptions) {
    const ended = (call: ActiveCall) => this.#active.release(call.slot, call);
    this.options = { logger, observer, defaultDeadlineMs, isTraced, ended };
  }

  serves({ descriptor, methods }: RpcService, protocol: RpcProtocol): void {
    for (const method of methods) {
      const { name } = method.descriptor;
      this.options.observer.serves({ service: descriptor.typeName, method: name, protocol });
    }
  }

  begin<Call extends ActiveCall>(call: Call): Call {
    call.slot = this.#active.take(call);
    if (this.#isDraining && call.isStream) call.stop(shuttingDown);
    return call;
  }

  /** Ends streams, present and future, which would not end by themselves, and lets the others finish. */
  drain(): void {
    this.#isDraining = true;
    for (const call of this.#active) if (call.isStream) call.stop(shuttingDown);
  }

  stopAll(): void {
    for (const call of this.#active) call.stop(shuttingDown);
  }
}

export abstract class ActiveCall implements RpcCall, Timed {
  readonly context: RequestContext;
  readonly metadata: (name: string) => string | undefined;
  /** By performance.now(). */
  readonly deadline: number;
  /** Its place among the active calls, which they set. */
  slot = -1;
  readonly #startedAt = performance.now();
  readonly #method: DescMethod;
  readonly #protocol: RpcProtocol;
  readonly #options: CallOptions;
  protected readonly span: Span | undefined;
  abstract readonly isStream: boolean;
  #finished = false;
  /** The error that the caller gets, once the call has failed or been stopped. */
  #failure: ConnectError | undefined;
  #controller: AbortController | undefined;

  constructor(method: DescMethod, origin: CallOrigin, timeoutMs: number, options: CallOptions) {
    this.metadata = origin.metadata;
    this.context =
      origin.context ??
      new RequestContext(options.logger, origin.metadata("x-request-id"), origin.metadata("traceparent"));
    this.deadline = this.#startedAt + timeoutMs;
    this.#method = method;
    this.#protocol = origin.protocol;
    this.#options = options;
    const { protocol, metadata } = origin;
    this.span =
      isTracing() && options.isTraced
        ? beginCallSpan(this.context, { method, protocol, metadata })
        : undefined;
  }

  /** Created at first use, because most methods do not use it. */
  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.#failure) this.#controller.abort(this.#failure);
    }
    return this.#controller.signal;
  }

  get failure(): ConnectError | undefined {
    return this.#failure;
  }

  expire(): void {
    this.stop(deadlineExceeded);
  }

  /** Ends the call from outside, whether or not the method obeys its signal; no effect once it has ended. */
  stop(makeReason: () => ConnectError): void {
    if (this.#finished) return;
    const reason = makeReason();
    this.#failure = reason;
    this.#finish(reason.code);
    this.interrupted(reason);
    this.#controller?.abort(reason);
  }

  /** The call has been stopped: whoever waits for it is told. */
  protected abstract interrupted(reason: ConnectError): void;

  succeed(): void {
    this.#finish();
  }

  /** Ends the call with an error. @returns the error that the caller gets */
  fail(thrown: unknown): ConnectError {
    if (this.#failure) return this.#failure;
    this.#failure = this.#explain(thrown);
    this.#finish(this.#failure.code);
    return this.#failure;
  }

  #explain(thrown: unknown): ConnectError {
    // An unavailable database is not a defect: its status is UNAVAILABLE.
    const error = asServiceError(thrown);
    if (error !== thrown && error.kind === ErrorKinds.internal) {
      this.context.log.error({ err: thrown, ...this.#operation() }, "A method failed");
      const detail = `Something went wrong here. Quote the request id when you report it: ${this.context.requestId}`;
      return new ConnectError(detail, Code.Internal);
    }
    if (error.cause !== undefined) {
      const level = error.kind === ErrorKinds.internal ? "error" : "warn";
      this.context.log[level]({ err: error.cause, ...this.#operation() }, error.message);
    }
    return connectError(error);
  }

  #finish(failure?: Code): void {
    if (this.#finished) return;
    this.#finished = true;
    const { logger, observer, ended } = this.#options;
    ended(this);
    const { service, operation } = this.#operation();
    const protocol = this.#protocol;
    const code = failure === undefined ? "ok" : codeToString(failure);
    if (this.span) endCallSpan(this.span, protocol, code);
    const durationMs = performance.now() - this.#startedAt;
    observer.completed({ service, method: operation, protocol, code, seconds: durationMs / 1000 });
    if (logger.isLevelEnabled("debug")) {
      this.context.log.debug({ service, operation, protocol, rpcCode: code, durationMs }, "A call completed");
    }
  }

  #operation(): { service: string; operation: string } {
    return { service: this.#method.parent.typeName, operation: this.#method.name };
  }
}

/**
 * Milliseconds before its deadline within which a call whose caller goes counts as one whose deadline has passed: the
 * caller counts from sending it, and the deadline is counted here from the start of its handling, which is later.
 */
const deadlineLeadMs = 50;

export class ActiveUnaryCall extends ActiveCall implements UnaryCall {
  override readonly isStream = false;
  readonly responseHeaders: { readonly "x-request-id": string };
  readonly #method: UnaryMethod;
  readonly #caller: UnaryCaller;

  constructor(method: UnaryMethod, caller: UnaryCaller, options: CallOptions) {
    super(method.descriptor, caller, caller.timeoutMs ?? options.defaultDeadlineMs, options);
    this.responseHeaders = { "x-request-id": this.context.requestId };
    this.#method = method;
    this.#caller = caller;
  }

  run(request: Message): Promise<MessageInitShape<DescMessage>> {
    const { span } = this;
    return span ? within(span, () => this.#method.run(request, this)) : this.#method.run(request, this);
  }

  cancel(): void {
    const isDue = this.#caller.timeoutMs !== undefined && this.deadline - performance.now() <= deadlineLeadMs;
    this.stop(isDue ? deadlineExceeded : cancelled);
  }

  protected override interrupted(reason: ConnectError): void {
    this.#caller.stopped(reason);
  }
}

export function connectError({ message, kind, retryAfterSeconds: wait }: ServiceError): ConnectError {
  // Half a surrogate pair cannot be percent-encoded: as a status message it would break the response.
  const detail = message.toWellFormed();
  return new ConnectError(detail, Code[kind.grpc], wait === undefined ? {} : { "retry-after": `${wait}` });
}

export function deadlineExceeded(): ConnectError {
  return new ConnectError("The deadline has passed.", Code.DeadlineExceeded);
}

export function cancelled(): ConnectError {
  return new ConnectError("The call was cancelled.", Code.Canceled);
}

function shuttingDown(): ConnectError {
  return new ConnectError("The server is shutting down.", Code.Unavailable);
}
