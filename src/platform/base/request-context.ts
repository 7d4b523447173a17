/** The context of one request of any protocol: its id, its trace, its log. The bindings make it and pass it along. */
import { randomUUID } from "node:crypto";
import type { Logger } from "pino";
import { readTraceparent, type Span, type SpanAttributes, startSpan } from "./tracing.ts";

/** 1 to 128 visible ASCII characters. */
const requestIdPattern = /^[\x21-\x7e]{1,128}$/;

export class RequestContext {
  /** Returned as `X-Request-Id` and written in every log line of this request. */
  readonly requestId: string;
  readonly #logger: Logger;
  readonly #caller: string | undefined;
  #span: Span | undefined;
  #log: Logger | undefined;

  /**
   * @param logger the parent of this request's log
   * @param requestId as the caller sent it; a new one is made if it is absent or does not match the pattern
   * @param traceparent as the caller sent it; dropped if it is not valid (W3C Trace Context section 3.2.2)
   */
  constructor(logger: Logger, requestId?: string | null, traceparent?: string | null) {
    this.#logger = logger;
    this.requestId = requestId && requestIdPattern.test(requestId) ? requestId : randomUUID();
    this.#caller = traceparent && readTraceparent(traceparent) ? traceparent : undefined;
  }

  /**
   * The span of this request or, where nothing is traced, the caller's; passed on to services that are called for it.
   */
  get traceparent(): string | undefined {
    return this.#span?.context.traceparent ?? this.#caller;
  }

  /**
   * Begins the span of this request, as a child of the caller's span. The binding ends it.
   * @returns undefined where nothing is traced
   * @param tracestate as the caller sent it
   */
  begin(name: string, attributes: SpanAttributes, tracestate?: string | null): Span | undefined {
    const parent = this.#caller === undefined ? undefined : { traceparent: this.#caller };
    const withState = parent && tracestate ? { ...parent, tracestate } : parent;
    this.#span = startSpan({ name, kind: "server", attributes, parent: withState });
    return this.#span;
  }

  /** The log of this request. It is created at its first use, because most requests log nothing. */
  get log(): Logger {
    this.#log ??= this.#logger.child({
      requestId: this.requestId,
      ...traceFields(this.#span?.context.traceparent, this.#caller),
    });
    return this.#log;
  }
}

function traceFields(span: string | undefined, caller: string | undefined): Readonly<Record<string, string>> {
  const ids = span === undefined ? undefined : readTraceparent(span);
  // OpenTelemetry's names, by which collectors find the lines of a trace.
  if (ids) return { trace_id: ids.traceId, span_id: ids.spanId };
  return caller === undefined ? {} : { traceparent: caller };
}
