/** The context of one request of any protocol: its id, its trace, its log. The bindings make it and pass it along. */
import { randomUUID } from "node:crypto";
import type { Logger } from "pino";
import { readTraceparent, type Span, type SpanAttributes, startSpan } from "./tracing.ts";

/** 1 to 128 visible ASCII characters. */
const requestIdPattern = /^[\x21-\x7e]{1,128}$/;

/** The caller's own id; a new one unless it matches the pattern. */
export function requestIdOf(sent?: string | string[] | null): string {
  return typeof sent === "string" && requestIdPattern.test(sent) ? sent : randomUUID();
}

export class RequestContext {
  /** Returned as `X-Request-Id` and written in every log line of this request. */
  readonly requestId: string;
  readonly #logger: Logger;
  readonly #caller: string | undefined;
  #span: Span | undefined;
  #log: Logger | undefined;

  /** @param requestId as sent @param traceparent as sent; dropped if not valid */
  constructor(logger: Logger, requestId?: string | null, traceparent?: string | null) {
    this.#logger = logger;
    this.requestId = requestIdOf(requestId);
    this.#caller = traceparent && readTraceparent(traceparent) ? traceparent : undefined;
  }

  /** The span of this request or, untraced, the caller's; passed on to services that are called for it. */
  get traceparent(): string | undefined {
    return this.#span?.context.traceparent ?? this.#caller;
  }

  /** Begins the span of this request, below the caller's; the binding ends it. Undefined where nothing is traced. */
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
