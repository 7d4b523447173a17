/** Spans that never arrive at the collector: each is counted, and the log says it once for as long as it lasts. */
import { BatchSpanProcessor, type SpanExporter, type SpanProcessor } from "@opentelemetry/sdk-trace";
import type { Logger } from "pino";

/** `queue`: as many as there is room for were waiting already; `collector`: it did not take them. */
type LossReason = "queue" | "collector";

/** Counts spans that are lost, with the reason. */
export type CountLost = (reason: LossReason, spans: number) => void;

/** Milliseconds in which spans are gathered for a batch. */
const batchMs = 1_000;
/** Spans that wait to be sent, at most. */
const room = 2_048;

/** Sends spans in batches. The SDK would drop silently what does not fit, so it is given no more than fits. */
export function batches(exporter: SpanExporter, logger: Logger, count: CountLost): SpanProcessor {
  let waiting = 0;
  /** Lost in this time of trouble; the first of them has been said. */
  let lost = 0;
  let isOverflowing = false;

  function lose(reason: LossReason, spans: number, err?: Error): void {
    count(reason, spans);
    if (lost === 0) logger.warn({ err, reason }, "Traces could not be sent and are lost");
    lost += spans;
  }

  /** A batch has arrived, and nothing was dropped since the one before it was sent. */
  function recovered(): void {
    if (lost === 0) return;
    logger.info({ spans: lost }, "Traces are sent again");
    lost = 0;
  }

  const sending = new BatchSpanProcessor({
    exporter: {
      export(spans, done) {
        waiting -= spans.length;
        const hasOverflowed = isOverflowing;
        isOverflowing = false;
        exporter.export(spans, (result) => {
          // 0: success; the enum is in a package that is not ours to depend on.
          if (result.code !== 0) lose("collector", spans.length, result.error);
          else if (!hasOverflowed && !isOverflowing) recovered();
          done(result);
        });
      },
      shutdown: () => exporter.shutdown(),
      forceFlush: async () => exporter.forceFlush?.(),
    },
    scheduledDelayMillis: batchMs,
    maxQueueSize: room,
  });
  return {
    onStart: (span, context) => sending.onStart(span, context),
    onEnd(span) {
      if (waiting >= room) {
        isOverflowing = true;
        lose("queue", 1);
        return;
      }
      waiting += 1;
      sending.onEnd(span);
    },
    forceFlush: () => sending.forceFlush(),
    shutdown: () => sending.shutdown(),
  };
}
