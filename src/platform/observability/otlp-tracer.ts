/**
 * Spans by OpenTelemetry's SDK, which sends them in batches by OTLP over HTTP. Loaded only where something is traced.
 * The SDK reads variables of its own: `OTEL_EXPORTER_OTLP_HEADERS` and its like, and `OTEL_RESOURCE_ATTRIBUTES`.
 */
import {
  createTraceState,
  ROOT_CONTEXT,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  trace,
} from "@opentelemetry/api";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import {
  defaultResource,
  detectResources,
  resourceAttributesEnvDetector,
  resourceFromAttributes,
} from "@opentelemetry/resources";
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  ParentBasedSampler,
  type Sampler,
  type SpanExporter,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from "@opentelemetry/sdk-trace";
import type { Logger } from "pino";
import { pause } from "../base/loop.ts";
import { readTraceparent, type TraceContext, type Tracer } from "../base/tracing.ts";
import type { TracingSettings } from "./tracing-settings.ts";

interface OtlpTracer extends Tracer {
  /** Sends what is left, as far as that is possible within the time. Never rejects. */
  close(graceMs: number): Promise<void>;
}

interface Options {
  readonly settings: TracingSettings;
  /** What the process is called, unless the environment says so. */
  readonly serviceName: string;
  readonly program: { readonly name: string; readonly version: string };
  readonly logger: Logger;
}

/** Milliseconds in which spans are gathered for a batch. */
const batchMs = 1_000;
/** Milliseconds that the last batches have at the end of the process, at most. */
const lastBatchesMs = 5_000;
/** Milliseconds between two lines of the log about what could not be sent. */
const reportMs = 60_000;

const kinds = {
  server: SpanKind.SERVER,
  client: SpanKind.CLIENT,
  producer: SpanKind.PRODUCER,
  consumer: SpanKind.CONSUMER,
  internal: SpanKind.INTERNAL,
};

export function createOtlpTracer({ settings, serviceName, program, logger }: Options): OtlpTracer {
  const exporter = new OTLPTraceExporter({ url: `${settings.endpoint}/v1/traces` });
  const named = settings.serviceName === undefined ? {} : { "service.name": settings.serviceName };
  const provider = new TracerProvider({
    resource: defaultResource()
      .merge(resourceFromAttributes({ "service.name": serviceName, "service.version": program.version }))
      .merge(detectResources({ detectors: [resourceAttributesEnvDetector] }))
      .merge(resourceFromAttributes(named)),
    sampler: samplerOf(settings.sampler),
    spanProcessors: [
      new BatchSpanProcessor({ exporter: reporting(exporter, logger), scheduledDelayMillis: batchMs }),
    ],
  });
  const tracer = provider.getTracer(program.name, program.version);
  return {
    start({ name, kind, attributes = {}, parent, links = [] }) {
      const parentContext = parent && spanContextOf(parent);
      const span = tracer.startSpan(
        name,
        {
          kind: kinds[kind],
          attributes,
          links: links.flatMap((link) => spanContextOf(link) ?? []).map((context) => ({ context })),
        },
        parentContext ? trace.setSpanContext(ROOT_CONTEXT, parentContext) : ROOT_CONTEXT,
      );
      const fail = (error: string) => {
        span.setStatus({ code: SpanStatusCode.ERROR });
        span.setAttribute("error.type", error);
      };
      return {
        context: contextOf(span.spanContext()),
        set: (more) => void span.setAttributes(more),
        fail,
        end(error) {
          if (error !== undefined) fail(error);
          span.end();
        },
      };
    },
    async close(graceMs) {
      const over = new AbortController();
      // What cannot be sent has been reported.
      const sent = provider.shutdown().catch(() => undefined);
      await Promise.race([sent, pause(Math.min(graceMs - 100, lastBatchesMs), over.signal)]);
      over.abort();
    },
  };
}

/** Says from time to time that spans could not be sent: nothing else would, and a collector may be away for long. */
function reporting(exporter: SpanExporter, logger: Logger): SpanExporter {
  let reportedAt = Number.NEGATIVE_INFINITY;
  let lost = 0;
  return {
    export(spans, done) {
      exporter.export(spans, (result) => {
        // 0: success; the enum is in a package that is not ours to depend on.
        if (result.code !== 0) {
          lost += spans.length;
          if (performance.now() - reportedAt > reportMs) {
            logger.warn({ err: result.error, spans: lost }, "Traces could not be sent and are lost");
            reportedAt = performance.now();
            lost = 0;
          }
        }
        done(result);
      });
    },
    shutdown: () => exporter.shutdown(),
    forceFlush: async () => exporter.forceFlush?.(),
  };
}

function contextOf({ traceId, spanId, traceFlags, traceState }: SpanContext): TraceContext {
  return {
    traceparent: `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, "0")}`,
    tracestate: traceState?.serialize() || undefined,
  };
}

function spanContextOf({ traceparent, tracestate }: TraceContext): SpanContext | undefined {
  const parts = readTraceparent(traceparent);
  if (!parts) return undefined;
  const { traceId, spanId, flags } = parts;
  return {
    ...{ traceId, spanId, traceFlags: flags & 1, isRemote: true },
    ...(tracestate !== undefined && { traceState: createTraceState(tracestate) }),
  };
}

function samplerOf({ root, isParentBased, ratio }: TracingSettings["sampler"]): Sampler {
  const ofRoot = {
    always_on: () => new AlwaysOnSampler(),
    always_off: () => new AlwaysOffSampler(),
    traceidratio: () => new TraceIdRatioBasedSampler(ratio),
  }[root]();
  return isParentBased ? new ParentBasedSampler({ root: ofRoot }) : ofRoot;
}
