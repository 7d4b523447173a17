/**
 * What happens around every method, in one order, whatever the protocol: a request context, a deadline, the
 * method itself, its errors as statuses, and a note of how it ended. The servers translate; they decide
 * nothing of this.
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
import { asServiceError, ErrorKinds } from "../base/errors.ts";
import type { RpcObserver, RpcProtocol } from "../base/observers.ts";
import { RequestContext } from "../base/request-context.ts";
import type { RpcCall, ServerStreamingMethod, UnaryMethod } from "./service.ts";

export interface CallOrigin {
  readonly method: DescMethod;
  readonly protocol: RpcProtocol;
  readonly metadata: (name: string) => string | undefined;
  /** Whether the caller gave one. */
  readonly hasDeadline: boolean;
  /** Made anew if the binding has none yet. */
  readonly context?: RequestContext | undefined;
}

/** What a call is told by whoever begins it. */
interface Surroundings {
  readonly logger: Logger;
  readonly observer: RpcObserver;
  /** Of a unary call whose caller gave no deadline, in milliseconds. */
  readonly defaultDeadlineMs: number;
  /** Called once, when it has ended. */
  readonly ended: () => void;
}

/** One call, from the arrival of its metadata to its status. */
export class ActiveCall implements RpcCall, Timed {
  readonly context: RequestContext;
  readonly metadata: (name: string) => string | undefined;
  /** By performance.now(). */
  readonly startedAt = performance.now();
  /** The default one, unless the caller gave one, which the servers keep, or it is a stream. */
  readonly deadline: number;
  readonly #logger: Logger;
  readonly #observer: RpcObserver;
  readonly #method: DescMethod;
  readonly #protocol: RpcProtocol;
  readonly #ended: () => void;
  #finished = false;
  /** What the caller is told, once the call has failed or been stopped. */
  #failure: ConnectError | undefined;
  #controller: AbortController | undefined;
  /** Rejects what the call waits for. */
  #interrupt: ((reason: ConnectError) => void) | undefined;
  #closeStream: (() => void) | undefined;

  constructor(origin: CallOrigin, { logger, observer, defaultDeadlineMs, ended }: Surroundings) {
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
  }

  get streams(): boolean {
    return this.#method.methodKind !== "unary";
  }

  /** Made at first use: most methods never look at it. */
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

  /**
   * Ends it from outside, at once, whether or not the method minds its signal. No effect if it has ended:
   * then no reason is made, either, as the servers call this after every call.
   */
  stop(makeReason: () => ConnectError): void {
    if (this.#finished) return;
    const reason = makeReason();
    this.#failure = reason;
    this.#finish(reason.code);
    this.#interrupt?.(reason);
    this.#controller?.abort(reason);
    this.#closeStream?.();
  }

  /**
   * Runs a unary method.
   * @throws ConnectError only, fit to be shown to the caller
   */
  unary<Answer>(
    method: UnaryMethod,
    request: Message,
    encode: (message: Message) => Answer,
  ): Promise<Answer> {
    // One promise, by hand: this is the path of nearly every call.
    return new Promise((resolve, reject) => {
      const fail = (thrown: unknown) => reject(this.fail(thrown));
      const succeed = (answer: MessageInitShape<DescMessage>) => {
        const encoded = encode(create(method.descriptor.output, answer));
        this.#finish();
        resolve(encoded);
      };
      this.#interrupt = reject;
      try {
        if (this.#failure) reject(this.#failure);
        else method.run(request, this).then(succeed).catch(fail);
      } catch (thrown) {
        fail(thrown);
      }
    });
  }

  /**
   * Runs a method that streams its answer; it is asked for a message when the one before has been taken.
   * @throws ConnectError only, fit to be shown to the caller
   */
  async *stream<Answer>(
    method: ServerStreamingMethod,
    request: Message,
    encode: (message: Message) => Answer,
  ): AsyncGenerator<Answer, void, undefined> {
    try {
      const answers = await this.orStopped(async () => method.run(request, this)[Symbol.asyncIterator]());
      const close = async () => answers.return?.();
      // What the method throws while it is made to leave concerns nobody.
      this.#closeStream = () => void close().catch(() => undefined);
      for (;;) {
        const next = await this.orStopped(() => answers.next());
        if (next.done) break;
        yield encode(create(method.descriptor.output, next.value));
      }
      this.#finish();
    } catch (thrown) {
      throw this.fail(thrown);
    } finally {
      // Left in the middle: whoever reads it has gone.
      this.stop(cancelled);
    }
  }

  /** Waits for `work`, but not beyond the end of the call. */
  orStopped<T>(work: () => Promise<T>): Promise<T> {
    if (this.#failure) return Promise.reject(this.#failure);
    return new Promise<T>((resolve, reject) => {
      this.#interrupt = reject;
      work().then(resolve, reject);
    });
  }

  /** Ends the call with an error, and says what the caller is told of it. */
  fail(thrown: unknown): ConnectError {
    if (this.#failure) return this.#failure;
    this.#failure = this.#explain(thrown);
    this.#finish(this.#failure.code);
    this.#closeStream?.();
    return this.#failure;
  }

  #explain(thrown: unknown): ConnectError {
    // A database that is away is no defect: it is answered as unavailable.
    const error = asServiceError(thrown);
    if (error !== thrown && error.kind === ErrorKinds.internal) {
      this.context.log.error({ err: thrown, rpc: this.#method.toString() }, "A method failed");
      const detail = `Something went wrong here. Quote the request id when you report it: ${this.context.requestId}`;
      return new ConnectError(detail, Code.Internal);
    }
    if (error.cause !== undefined) {
      const level = error.kind === ErrorKinds.internal ? "error" : "warn";
      this.context.log[level]({ err: error.cause, rpc: this.#method.toString() }, error.message);
    }
    const wait = error.retryAfterSeconds;
    // Half a surrogate pair cannot be percent-encoded: as a status message it would break the answer.
    const detail = error.message.toWellFormed();
    return new ConnectError(detail, error.kind.grpc, wait === undefined ? {} : { "retry-after": `${wait}` });
  }

  #finish(failure?: Code): void {
    if (this.#finished) return;
    this.#finished = true;
    this.#ended();
    const ending = {
      service: this.#method.parent.typeName,
      method: this.#method.name,
      protocol: this.#protocol,
      code: failure === undefined ? "ok" : codeToString(failure),
      seconds: (performance.now() - this.startedAt) / 1000,
    };
    this.#observer.completed(ending);
    if (this.#logger.isLevelEnabled("debug")) this.context.log.debug(ending, "Answered a call");
  }
}

export function deadlineExceeded(): ConnectError {
  return new ConnectError("The deadline has passed.", Code.DeadlineExceeded);
}

export function cancelled(): ConnectError {
  return new ConnectError("The call was cancelled.", Code.Canceled);
}

/** INTERNAL is what gRPC has for it, in every implementation. */
export function malformedRequest(): ConnectError {
  return new ConnectError("The request message cannot be decoded.", Code.Internal);
}
