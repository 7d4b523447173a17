/**
 * The context of one request of any protocol: its id, its trace, its log. The binding (openapi/bind.ts,
 * rpc/connect-handler.ts, rpc/call.ts) makes it first and passes it along explicitly.
 */
import { randomUUID } from "node:crypto";
import type { Logger } from "pino";

/** 1 to 128 visible ASCII characters. */
const requestIdPattern = /^[\x21-\x7e]{1,128}$/;
/** W3C trace context, version 00. */
const traceparentPattern = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/;

export class RequestContext {
  /** Returned as `X-Request-Id` and written in every log line of this request. */
  readonly requestId: string;
  /** Passed on to every service that is called for this request. */
  readonly traceparent: string | undefined;
  readonly #logger: Logger;
  #log: Logger | undefined;

  /**
   * @param logger the parent of this request's log
   * @param requestId as the caller sent it; a new one is made if it is absent or does not match the pattern
   * @param traceparent as the caller sent it; dropped if it does not match the pattern
   */
  constructor(logger: Logger, requestId?: string | null, traceparent?: string | null) {
    this.#logger = logger;
    this.requestId = requestId && requestIdPattern.test(requestId) ? requestId : randomUUID();
    this.traceparent = traceparent && traceparentPattern.test(traceparent) ? traceparent : undefined;
  }

  /** Created at first use, because most requests log nothing. */
  get log(): Logger {
    this.#log ??= this.#logger.child({
      requestId: this.requestId,
      ...(this.traceparent && { traceparent: this.traceparent }),
    });
    return this.#log;
  }
}
