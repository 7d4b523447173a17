/** The active calls of one server: the pipeline begins them, and ends them when the server shuts down. */
import { Code, ConnectError } from "@connectrpc/connect";
import type { Logger } from "pino";
import { Deadlines } from "../base/deadlines.ts";
import type { RpcObserver, RpcProtocol } from "../base/observers.ts";
import { ActiveCall, type CallOrigin } from "./call.ts";
import type { RpcService } from "./service.ts";

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
  readonly #logger: Logger;
  readonly #observer: RpcObserver;
  readonly #defaultDeadlineMs: number;
  readonly #isTraced: boolean;
  readonly #active = new Deadlines<ActiveCall>();
  #draining = false;

  constructor({ logger, observer, defaultDeadlineMs = 10_000, isTraced = true }: RpcPipelineOptions) {
    this.#logger = logger;
    this.#observer = observer;
    this.#defaultDeadlineMs = defaultDeadlineMs;
    this.#isTraced = isTraced;
  }

  serves({ descriptor, methods }: RpcService, protocol: RpcProtocol): void {
    for (const method of methods) {
      this.#observer.serves({ service: descriptor.typeName, method: method.descriptor.name, protocol });
    }
  }

  begin(origin: CallOrigin): ActiveCall {
    const call: ActiveCall = new ActiveCall(origin, {
      logger: this.#logger,
      observer: this.#observer,
      defaultDeadlineMs: this.#defaultDeadlineMs,
      isTraced: this.#isTraced,
      ended: () => this.#active.release(slot, call),
    });
    const slot = this.#active.take(call);
    if (call.streams && this.#draining) call.stop(shuttingDown);
    return call;
  }

  /** Ends streams, which would not end by themselves, and lets the others finish. */
  drain(): void {
    this.#draining = true;
    for (const call of this.#active) if (call.streams) call.stop(shuttingDown);
  }

  stopAll(): void {
    for (const call of this.#active) call.stop(shuttingDown);
  }
}

function shuttingDown(): ConnectError {
  return new ConnectError("The server is shutting down.", Code.Unavailable);
}
