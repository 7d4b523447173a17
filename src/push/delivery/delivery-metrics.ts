/** The metrics of delivery. */
import { Gauge, Histogram } from "prom-client";
import type { Metrics } from "../../platform/observability/metrics.ts";
import { Outcomes } from "./outcomes.ts";

export type DeliveryMetrics = ReturnType<typeof createDeliveryMetrics>;

const durationBuckets = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/** The outcomes of a message, as they are counted; `dropped`: it was not sent. */
const messageOutcomes = [...Object.keys(new Outcomes().counts), "dropped"];

/** @param providers the names of the providers in use */
export function createDeliveryMetrics(
  { registry, counter }: Pick<Metrics, "registry" | "counter">,
  providers: readonly string[],
) {
  const paused = new Gauge({
    name: "gatepost_push_provider_paused",
    help: "1 while nothing is sent to the provider because it failed or refused, as this process last saw it.",
    labelNames: ["provider"],
    registers: [registry],
  });
  const duration = new Histogram({
    name: "gatepost_push_chunk_duration_seconds",
    help: "Time from taking a chunk of messages to storing the last of its results.",
    labelNames: ["provider"],
    buckets: durationBuckets,
    registers: [registry],
  });
  for (const provider of providers) {
    paused.set({ provider }, 0);
    duration.zero({ provider });
  }
  return {
    messages: counter("gatepost_push_messages_total", "Messages by provider and outcome.", {
      provider: providers,
      outcome: messageOutcomes,
    }),
    alarms: counter(
      "gatepost_push_message_alarms_total",
      "Messages that are blocked until an operator mends the reason, such as credentials that the provider lacks.",
      { provider: providers },
    ),
    senderExceptions: counter(
      "gatepost_push_sender_exceptions_total",
      "Exceptions of senders, which are defects; their messages are tried again.",
      { provider: providers },
    ),
    removalStops: counter(
      "gatepost_push_removal_stops_total",
      "Stops of removals, as the provider reported too many users' devices dead.",
      { provider: providers },
    ),
    givenUp: counter("gatepost_push_dead_chunks_total", "Chunks of messages that were given up.", {
      provider: providers,
    }),
    paused: (provider: string, isPaused: boolean) => paused.set({ provider }, isPaused ? 1 : 0),
    chunkEnded: (provider: string, seconds: number) => duration.observe({ provider }, seconds),
  };
}
