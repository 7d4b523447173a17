/**
 * What is known of the request in hand, on whatever protocol it came: its id, its trace, its log. It is
 * made by the binding (openapi/bind.ts, rpc/connect-handler.ts, rpc/call.ts) before anything else and passed along explicitly.
 */
import { randomUUID } from "node:crypto";
import type { Logger } from "pino";

/** 1 to 128 visible ASCII characters. */
const requestIdPattern = /^[\x21-\x7e]{1,128}$/;
/** W3C trace context, version 00. */
const traceparentPattern = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/;

export class RequestContext {
  /** Answered as `X-Request-Id` and written in every log line of this request. */
  readonly requestId: string;
  /** Passed on to every service that is called for this request. */
  readonly traceparent: string | undefined;
  readonly #logger: Logger;
  #log: Logger | undefined;

  /**
   * @param logger the parent of this request's log
   * @param requestId as the caller sent it; made anew if it is absent or not of the right form
   * @param traceparent as the caller sent it; dropped if it is not of the right form
   */
  constructor(logger: Logger, requestId?: string | null, traceparent?: string | null) {
    this.#logger = logger;
    this.requestId = requestId && requestIdPattern.test(requestId) ? requestId : randomUUID();
    this.traceparent = traceparent && traceparentPattern.test(traceparent) ? traceparent : undefined;
  }

  /** Made at first use: most requests log nothing. */
  get log(): Logger {
    this.#log ??= this.#logger.child({
      requestId: this.requestId,
      ...(this.traceparent && { traceparent: this.traceparent }),
    });
    return this.#log;
  }
}
