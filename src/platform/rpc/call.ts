/**
 * The pipeline around every method, for every protocol: a request context, a deadline, the method, its errors as
 * statuses, metrics and the log. The servers only translate between this and their protocol.
 */
import {
  create,
  type DescMessage,
  type DescMethod,
  type Message,
  type MessageInitShape,
} from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { codeToString } from "@connectrpc/connect/protocol-connect";
import type { Logger } from "pino";
import type { Timed } from "../base/deadlines.ts";
import { asServiceError, ErrorKinds, type ServiceError } from "../base/errors.ts";
import type { RpcObserver, RpcProtocol } from "../base/observers.ts";
import { RequestContext } from "../base/request-context.ts";
import { isTracing, type Span, within } from "../base/tracing.ts";
import { beginCallSpan, endCallSpan } from "./call-span.ts";
import type { RpcCall, ServerStreamingMethod, UnaryMethod } from "./service.ts";

export interface CallOrigin {
  readonly method: DescMethod;
  readonly protocol: RpcProtocol;
  readonly metadata: (name: string) => string | undefined;
  /** Whether the caller set a deadline. */
  readonly hasDeadline: boolean;
  /** A new one is made if the binding has none yet. */
  readonly context?: RequestContext | undefined;
}

interface CallOptions {
  readonly logger: Logger;
  readonly observer: RpcObserver;
  /** The timeout of a unary call whose caller gave no deadline, in milliseconds. */
  readonly defaultDeadlineMs: number;
  readonly isTraced: boolean;
  /** Called once, when the call has ended. */
  readonly ended: () => void;
}

export class ActiveCall implements RpcCall, Timed {
  readonly context: RequestContext;
  readonly metadata: (name: string) => string | undefined;
  /** The moment, by performance.now(). */
  readonly startedAt = performance.now();
  /** The default deadline. Infinity for streams, and if the caller set a deadline, which the servers enforce. */
  readonly deadline: number;
  readonly #logger: Logger;
  readonly #observer: RpcObserver;
  readonly #method: DescMethod;
  readonly #protocol: RpcProtocol;
  readonly #ended: () => void;
  readonly #span: Span | undefined;
  #finished = false;
  /** The error that the caller gets, once the call has failed or been stopped. */
  #failure: ConnectError | undefined;
  #controller: AbortController | undefined;
  /** Rejects the promise that the call waits for. */
  #interrupt: ((reason: ConnectError) => void) | undefined;
  #closeStream: (() => void) | undefined;

  constructor(origin: CallOrigin, { logger, observer, defaultDeadlineMs, isTraced, ended }: CallOptions) {
    this.metadata = origin.metadata;
    this.context =
      origin.context ??
      new RequestContext(logger, origin.metadata("x-request-id"), origin.metadata("traceparent"));
    this.#logger = logger;
    this.#observer = observer;
    this.#method = origin.method;
    const isEndless = origin.hasDeadline || this.streams;
    this.deadline = isEndless ? Number.POSITIVE_INFINITY : this.startedAt + defaultDeadlineMs;
    this.#protocol = origin.protocol;
    this.#ended = ended;
    this.#span = isTracing() && isTraced ? beginCallSpan(this.context, origin) : undefined;
  }

  get streams(): boolean {
    return this.#method.methodKind !== "unary";
  }

  /** Created at first use, because most methods do not use it. */
  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.#failure) this.#controller.abort(this.#failure);
    }
    return this.#controller.signal;
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
    this.#interrupt?.(reason);
    this.#controller?.abort(reason);
    this.#closeStream?.();
  }

  /** Runs a unary method. @throws ConnectError only, which may be shown to the caller */
  unary<Encoded>(
    method: UnaryMethod,
    request: Message,
    encode: (message: Message) => Encoded,
  ): Promise<Encoded> {
    // A single promise, for speed: nearly every call takes this path.
    return new Promise((resolve, reject) => {
      const fail = (thrown: unknown) => reject(this.fail(thrown));
      const succeed = (response: MessageInitShape<DescMessage>) => {
        const encoded = encode(create(method.descriptor.output, response));
        this.#finish();
        resolve(encoded);
      };
      this.#interrupt = reject;
      try {
        if (this.#failure) reject(this.#failure);
        else this.#run(method, request).then(succeed).catch(fail);
      } catch (thrown) {
        fail(thrown);
      }
    });
  }

  #run(method: UnaryMethod, request: Message): ReturnType<UnaryMethod["run"]> {
    return this.#span ? within(this.#span, () => method.run(request, this)) : method.run(request, this);
  }

  /**
   * Runs a server-streaming method, a message at a time. @throws ConnectError only, which may be shown to the caller
   */
  async *stream<Encoded>(
    method: ServerStreamingMethod,
    request: Message,
    encode: (message: Message) => Encoded,
  ): AsyncGenerator<Encoded, void, undefined> {
    try {
      const messages = await this.orStopped(async () => method.run(request, this)[Symbol.asyncIterator]());
      const close = async () => messages.return?.();
      // The call has ended already, so an error while the method is closed is ignored.
      this.#closeStream = () => void close().catch(() => undefined);
      for (;;) {
        const next = await this.orStopped(() => messages.next());
        if (next.done) break;
        yield encode(create(method.descriptor.output, next.value));
      }
      this.#finish();
    } catch (thrown) {
      throw this.fail(thrown);
    } finally {
      // Has an effect only if the reader stopped reading before the end.
      this.stop(cancelled);
    }
  }

  /** Waits for `work`, and rejects when the call is stopped. */
  orStopped<T>(work: () => Promise<T>): Promise<T> {
    if (this.#failure) return Promise.reject(this.#failure);
    return new Promise<T>((resolve, reject) => {
      this.#interrupt = reject;
      work().then(resolve, reject);
    });
  }

  /** Ends the call with an error. @returns the error that the caller gets */
  fail(thrown: unknown): ConnectError {
    if (this.#failure) return this.#failure;
    this.#failure = this.#explain(thrown);
    this.#finish(this.#failure.code);
    this.#closeStream?.();
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
    this.#ended();
    const { service, operation } = this.#operation();
    const protocol = this.#protocol;
    const code = failure === undefined ? "ok" : codeToString(failure);
    if (this.#span) endCallSpan(this.#span, protocol, code);
    const durationMs = performance.now() - this.startedAt;
    this.#observer.completed({ service, method: operation, protocol, code, seconds: durationMs / 1000 });
    if (this.#logger.isLevelEnabled("debug")) {
      this.context.log.debug({ service, operation, protocol, rpcCode: code, durationMs }, "A call completed");
    }
  }

  #operation(): { service: string; operation: string } {
    return { service: this.#method.parent.typeName, operation: this.#method.name };
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

/** The status is INTERNAL, as in every gRPC implementation. */
export function malformedRequest(): ConnectError {
  return new ConnectError("The request message cannot be decoded.", Code.Internal);
}
