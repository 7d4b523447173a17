/** The active calls of one server: the pipeline begins them, and ends them when the server shuts down. */
import { Code, ConnectError } from "@connectrpc/connect";
import type { Logger } from "pino";
import { Deadlines } from "../base/deadlines.ts";
import type { RpcObserver, RpcProtocol } from "../base/observers.ts";
import { type ActiveCall, ActiveUnaryCall, type CallOptions, type CallOrigin } from "./call.ts";
import type { RpcService, StreamingMethod, UnaryMethod } from "./service.ts";
import { ActiveStream } from "./stream-call.ts";
import type { UnaryCaller } from "./unary-call.ts";

/** Longest response message, in bytes: the default limit of gRPC clients. */
export const maxResponseBytes = 4 * 1024 * 1024;

export interface RpcPipelineOptions {
  readonly logger: Logger;
  readonly observer: RpcObserver;
  /** The timeout of a unary call whose caller gave no deadline, in milliseconds. */
  readonly defaultDeadlineMs?: number;
  /** False for probes, which come all the time and tell nothing of anybody's request. */
  readonly isTraced?: boolean;
}

export class RpcPipeline {
  readonly #options: CallOptions;
  readonly #active = new Deadlines<ActiveCall>(10);
  #draining = false;

  constructor({ logger, observer, defaultDeadlineMs = 10_000, isTraced = true }: RpcPipelineOptions) {
    const ended = (call: ActiveCall) => this.#active.release(call.slot, call);
    this.#options = { logger, observer, defaultDeadlineMs, isTraced, ended };
  }

  serves({ descriptor, methods }: RpcService, protocol: RpcProtocol): void {
    for (const method of methods) {
      const { name } = method.descriptor;
      this.#options.observer.serves({ service: descriptor.typeName, method: name, protocol });
    }
  }

  beginUnary(method: UnaryMethod, caller: UnaryCaller): ActiveUnaryCall {
    const call = new ActiveUnaryCall(method, caller, this.#options);
    call.slot = this.#active.take(call);
    return call;
  }

  beginStream(method: StreamingMethod, origin: CallOrigin): ActiveStream {
    const call = new ActiveStream(method, origin, this.#options);
    call.slot = this.#active.take(call);
    if (this.#draining) call.stop(shuttingDown);
    return call;
  }

  /** Ends streams, which would not end by themselves, and lets the others finish. */
  drain(): void {
    this.#draining = true;
    for (const call of this.#active) if (call instanceof ActiveStream) call.stop(shuttingDown);
  }

  stopAll(): void {
    for (const call of this.#active) call.stop(shuttingDown);
  }
}

function shuttingDown(): ConnectError {
  return new ConnectError("The server is shutting down.", Code.Unavailable);
}
