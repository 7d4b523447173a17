/** Spans of what is done for one request, over processes (OpenTelemetry). Nothing is traced until {@link traceWith}. */
import { AsyncLocalStorage } from "node:async_hooks";

/** Names a span for others, as W3C Trace Context writes it. */
export interface TraceContext {
  readonly traceparent: string;
  readonly tracestate?: string | undefined;
  /** Whether it is a span of this process; those that a caller, an event or a job names are not. */
  readonly isLocal?: boolean;
}

/** Attributes, named by OpenTelemetry's semantic conventions. No value is what a caller has sent, or of a person. */
export type SpanAttributes = Readonly<Record<string, string | number>>;

export interface SpanStart {
  /** The name of the operation: one of few. */
  readonly name: string;
  readonly kind: "server" | "client" | "producer" | "consumer" | "internal";
  readonly attributes?: SpanAttributes | undefined;
  /** The span around this one. Unless given, the present one; none for a server's or a consumer's. */
  readonly parent?: TraceContext | undefined;
  /** The other spans that this work is done for, too. */
  readonly links?: readonly TraceContext[] | undefined;
}

export interface Span {
  readonly context: TraceContext;
  set(attributes: SpanAttributes): void;
  /** Records a failure, in a word, for work that fails without throwing. */
  fail(error: string): void;
  /** @param error what went wrong, in a word (`error.type`); undefined if nothing did */
  end(error?: string): void;
}

export interface Tracer {
  start(span: SpanStart): Span;
}

/** A version, the ids of a trace and of a span, and flags. Later versions begin alike. */
const traceparentPattern =
  /^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})$/;

/** OpenTelemetry's word for an error that has none. */
export const otherError = "_OTHER";

let tracer: Tracer | undefined;
const around = new AsyncLocalStorage<Span | undefined>();

/** Traces from now on; with undefined, no more. */
export function traceWith(one: Tracer | undefined): void {
  tracer = one;
}

/** Whether anything is traced. To be asked first where even the making of a closure counts. */
export function isTracing(): boolean {
  return tracer !== undefined;
}

/** The span around the caller; undefined where nothing is traced. */
export function currentSpan(): Span | undefined {
  return tracer && around.getStore();
}

/** Begins a span, which the caller ends; undefined where nothing is traced. */
export function startSpan(start: SpanStart): Span | undefined {
  if (!tracer) return undefined;
  const isFromOutside = start.kind === "server" || start.kind === "consumer";
  const parent = start.parent ?? (isFromOutside ? undefined : around.getStore()?.context);
  return tracer.start({ ...start, parent });
}

export function within<T>(span: Span | undefined, work: () => T): T {
  return span ? around.run(span, work) : work();
}

export function untraced<T>(work: () => T): T {
  return tracer ? around.run(undefined, work) : work();
}

/**
 * Does the work in a span, failed if it rejects. @param errorType a word for an error; undefined if it is no failure
 */
export async function inSpan<T>(
  start: SpanStart,
  work: (span?: Span) => Promise<T>,
  errorType: (error: unknown) => string | undefined = nameOf,
): Promise<T> {
  const span = startSpan(start);
  if (!span) return work();
  try {
    const result = await around.run(span, () => work(span));
    span.end();
    return result;
  } catch (error) {
    span.end(errorType(error));
    throw error;
  }
}

function nameOf(error: unknown): string {
  return error instanceof Error ? error.name : otherError;
}

/** The parts of a `traceparent`, flags as a number; undefined if it is not valid. */
export function readTraceparent(text: string) {
  const [, traceId, spanId, flags] = traceparentPattern.exec(text) ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined;
  return { traceId, spanId, flags: Number.parseInt(flags, 16) };
}

/** The fields of a request, an event or a job by which the trace goes on elsewhere. */
export function traceHeaders({
  traceparent,
  tracestate,
}: {
  readonly traceparent?: string | null | undefined;
  readonly tracestate?: string | null | undefined;
}): Record<string, string> {
  return { ...(traceparent && { traceparent }), ...(tracestate && { tracestate }) };
}

/** Whether spans of this trace are recorded. */
export function isSampled({ traceparent }: TraceContext): boolean {
  return ((readTraceparent(traceparent)?.flags ?? 0) & 1) === 1;
}
