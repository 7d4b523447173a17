/**
 * The pipeline around every method, for every protocol: a request context, a deadline, the method, its errors as
 * statuses, metrics and the log; and the end of calls when the server shuts down. The protocols only translate between
 * this and the wire.
 */
import type { DescMethod } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { codeToString } from "@connectrpc/connect/protocol-connect";
import type { Logger } from "pino";
import { Deadlines, type Timed } from "../base/deadlines.ts";
import { asServiceError, ErrorKinds, logMessage } from "../base/errors.ts";
import type { RpcObserver, RpcProtocol } from "../base/observers.ts";
import { RequestContext } from "../base/request-context.ts";
import { isTracing, type Span } from "../base/tracing.ts";
import { connectError, deadlineExceeded, shuttingDown } from "./faults.ts";
import type { RpcCall, RpcService } from "./service.ts";

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

/** The active calls of a server. */
export class RpcPipeline {
  readonly options: Required<RpcPipelineOptions>;
  readonly #active = new Deadlines<ActiveCall>(10);
  #isDraining = false;

  constructor({ logger, observer, defaultDeadlineMs = 10_000, isTraced = true }: RpcPipelineOptions) {
    this.options = { logger, observer, defaultDeadlineMs, isTraced };
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

  /** Called once for each call that has begun. */
  ended(call: ActiveCall): void {
    this.#active.release(call.slot, call);
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
  readonly #pipeline: RpcPipeline;
  protected readonly span: Span | undefined;
  abstract readonly isStream: boolean;
  protected finished = false;
  /** The error that the caller gets, once the call has failed or been stopped. */
  #failure: ConnectError | undefined;
  #controller: AbortController | undefined;

  constructor(method: DescMethod, origin: CallOrigin, timeoutMs: number, pipeline: RpcPipeline) {
    const { protocol, metadata, context } = origin;
    const { logger, isTraced } = pipeline.options;
    this.metadata = metadata;
    this.context = context ?? new RequestContext(logger, metadata("x-request-id"), metadata("traceparent"));
    this.deadline = this.#startedAt + timeoutMs;
    this.#method = method;
    this.#protocol = protocol;
    this.#pipeline = pipeline;
    this.span = isTracing() && isTraced ? beginSpan(this.context, method, origin) : undefined;
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
    if (this.finished) return;
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
      this.context.log[level]({ err: error.cause, ...this.#operation() }, logMessage(error));
    }
    return connectError(error);
  }

  #finish(failure?: Code): void {
    if (this.finished) return;
    this.finished = true;
    const { logger, observer } = this.#pipeline.options;
    this.#pipeline.ended(this);
    const { service, operation } = this.#operation();
    const protocol = this.#protocol;
    const code = failure === undefined ? "ok" : codeToString(failure);
    if (this.span) endSpan(this.span, protocol, code);
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

/** Begins the span of a call, by OpenTelemetry's conventions for gRPC and for Connect. */
function beginSpan(context: RequestContext, method: DescMethod, { protocol, metadata }: CallOrigin) {
  const name = `${method.parent.typeName}/${method.name}`;
  const system = protocol === "connect" ? "connectrpc" : "grpc";
  return context.begin(name, { "rpc.system.name": system, "rpc.method": name }, metadata("tracestate"));
}

/** Statuses that are the server's failures; the others are the caller's. */
const failures: ReadonlySet<string> = new Set([
  ...["unknown", "deadline_exceeded", "unimplemented", "internal", "unavailable", "data_loss"],
]);

/** @param code `ok`, or the status in the spelling of Connect */
function endSpan(span: Span, protocol: RpcProtocol, code: string): void {
  const status = protocol === "connect" ? code : code.toUpperCase().replace("CANCELED", "CANCELLED");
  // Connect has no word for success.
  if (status !== "ok") span.set({ "rpc.response.status_code": status });
  span.end(failures.has(code) ? status : undefined);
}
