/** Spans by OpenTelemetry's SDK, by OTLP over HTTP. It reads `OTEL_EXPORTER_OTLP_TIMEOUT` and its like itself. */
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
  /** The name of the process, unless the environment sets one. */
  readonly serviceName: string;
  readonly program: { readonly name: string; readonly version: string };
  readonly logger: Logger;
}

/** Milliseconds in which spans are gathered for a batch. */
const batchMs = 1_000;
/** Milliseconds that the last batches have at the end of the process, at most. */
const lastBatchesMs = 5_000;

const kinds = {
  server: SpanKind.SERVER,
  client: SpanKind.CLIENT,
  producer: SpanKind.PRODUCER,
  consumer: SpanKind.CONSUMER,
  internal: SpanKind.INTERNAL,
};

export function createOtlpTracer({ settings, serviceName, program, logger }: Options): OtlpTracer {
  const exporter = new OTLPTraceExporter({
    url: `${settings.endpoint}/v1/traces`,
    headers: { ...settings.headers },
  });
  const named = settings.serviceName === undefined ? {} : { "service.name": settings.serviceName };
  const provider = new TracerProvider({
    resource: defaultResource()
      .merge(resourceFromAttributes({ "service.name": serviceName, "service.version": program.version }))
      .merge(detectResources({ detectors: [resourceAttributesEnvDetector] }))
      .merge(resourceFromAttributes(named)),
    sampler: samplerOf(settings.sampler),
    spanProcessors: [
      new BatchSpanProcessor({ exporter: logging(exporter, logger), scheduledDelayMillis: batchMs }),
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

/** Logs once that batches are lost, for as long as the collector does not take them. */
function logging(exporter: SpanExporter, logger: Logger): SpanExporter {
  let isLosing = false;
  return {
    export: (spans, done) =>
      exporter.export(spans, (result) => {
        // 0: success; the enum is in a package that is not ours to depend on.
        const isLost = result.code !== 0;
        if (isLost && !isLosing) logger.warn({ err: result.error }, "Traces could not be sent and are lost");
        if (!isLost && isLosing) logger.info("Traces are sent again");
        isLosing = isLost;
        done(result);
      }),
    shutdown: () => exporter.shutdown(),
    forceFlush: async () => exporter.forceFlush?.(),
  };
}

function contextOf({ traceId, spanId, traceFlags, traceState }: SpanContext): TraceContext {
  return {
    traceparent: `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, "0")}`,
    tracestate: traceState?.serialize() || undefined,
    isLocal: true,
  };
}

function spanContextOf({ traceparent, tracestate, isLocal = false }: TraceContext): SpanContext | undefined {
  const parts = readTraceparent(traceparent);
  if (!parts) return undefined;
  const { traceId, spanId, flags } = parts;
  return {
    traceId,
    spanId,
    traceFlags: flags & 1,
    isRemote: !isLocal,
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
