/** A tracer whose spans a test can read: for what is done with spans, where nothing is to be sent. */
import { randomBytes } from "node:crypto";
import { onTestFinished } from "vitest";
import { type SpanAttributes, type SpanStart, traceWith } from "../../src/platform/base/tracing.ts";

export interface RecordedSpan extends SpanStart {
  readonly traceparent: string;
  attributes: SpanAttributes;
  /** Undefined as long as it has not ended, null if it ended well. */
  error: string | null | undefined;
}

/** Traces until the test ends. */
export function recordSpans(): RecordedSpan[] {
  const spans: RecordedSpan[] = [];
  traceWith({
    start(start) {
      const trace = start.parent?.traceparent.slice(3, 35) ?? randomBytes(16).toString("hex");
      const flags = start.parent?.traceparent.slice(-2) ?? "01";
      const traceparent = `00-${trace}-${randomBytes(8).toString("hex")}-${flags}`;
      const span: RecordedSpan = {
        ...start,
        traceparent,
        attributes: { ...start.attributes },
        error: undefined,
      };
      spans.push(span);
      return {
        context: { traceparent },
        set(attributes) {
          span.attributes = { ...span.attributes, ...attributes };
        },
        fail(error) {
          span.error = error;
        },
        end(error) {
          span.error = error ?? span.error ?? null;
        },
      };
    },
  });
  onTestFinished(() => traceWith(undefined));
  return spans;
}
