/** The calls in hand of one server: it begins them, and ends them when the server shuts down. */
import { Code, ConnectError } from "@connectrpc/connect";
import type { Logger } from "pino";
import type { RpcObserver } from "./rpc.ts";
import { ActiveCall, type CallOrigin, deadlineExceeded } from "./rpc-call.ts";

/** Longest answer, in bytes: what gRPC clients accept unless they are told otherwise. */
export const maxAnswerBytes = 4 * 1024 * 1024;

export interface RpcPipelineOptions {
  readonly logger: Logger;
  readonly observer: RpcObserver;
  /** Of a unary call whose caller gave no deadline, in milliseconds. */
  readonly defaultDeadlineMs?: number;
}

export class RpcPipeline {
  readonly #logger: Logger;
  readonly #observer: RpcObserver;
  readonly #defaultDeadlineMs: number;
  /** The oldest first. */
  readonly #open = new Set<ActiveCall>();
  readonly #ended = (call: ActiveCall) => void this.#open.delete(call);
  #clock: NodeJS.Timeout | undefined;
  #draining = false;

  constructor({ logger, observer, defaultDeadlineMs = 10_000 }: RpcPipelineOptions) {
    this.#logger = logger;
    this.#observer = observer;
    this.#defaultDeadlineMs = defaultDeadlineMs;
  }

  begin(origin: CallOrigin): ActiveCall {
    const call = new ActiveCall(origin, this.#logger, this.#observer, this.#ended);
    this.#open.add(call);
    if (call.needsDeadline && !this.#clock) this.#wakeIn(this.#defaultDeadlineMs);
    if (call.streams && this.#draining) call.stop(shuttingDown);
    return call;
  }

  #wakeIn(milliseconds: number): void {
    this.#clock = setTimeout(() => this.#passDeadlines(), milliseconds).unref();
  }

  /** One timer for all: the default deadlines pass in the order in which the calls came. */
  #passDeadlines(): void {
    this.#clock = undefined;
    for (const call of this.#open) {
      if (!call.needsDeadline) continue;
      const left = call.startedAt + this.#defaultDeadlineMs - performance.now();
      if (left > 0) {
        this.#wakeIn(left);
        break;
      }
      call.stop(deadlineExceeded);
    }
  }

  /** Ends streams, which would not end by themselves, and lets the others finish. */
  drain(): void {
    this.#draining = true;
    for (const call of this.#open) if (call.streams) call.stop(shuttingDown);
  }

  /** Ends everything. */
  stopAll(): void {
    for (const call of this.#open) call.stop(shuttingDown);
  }
}

function shuttingDown(): ConnectError {
  return new ConnectError("The server is shutting down.", Code.Unavailable);
}
