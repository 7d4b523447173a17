/** The metrics of delivery. */
import { Gauge, Histogram } from "prom-client";
import type { EventCounter, Metrics } from "../../platform/observability/metrics.ts";
import type { Outcomes } from "./outcomes.ts";

export interface DeliveryMetrics {
  /** Messages by outcome. A `dropped` message was not sent. */
  readonly messages: EventCounter<"provider" | "outcome">;
  /** Messages that failed for a reason that an operator can mend. */
  readonly alarms: EventCounter<"provider">;
  /** Exceptions that senders threw: defects. */
  readonly senderExceptions: EventCounter<"provider">;
  /** Stops of the removal of dead devices. */
  readonly removalStops: EventCounter<"provider">;
  /** Chunks that were given up. */
  readonly givenUp: EventCounter<"provider">;
  paused(provider: string, isPaused: boolean): void;
  chunkEnded(provider: string, seconds: number): void;
}

const durationBuckets = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/** What becomes of a message: an outcome of the provider, or nothing was sent. */
const messageOutcomes: readonly (keyof Outcomes["counts"] | "dropped")[] = [
  "sent",
  "dead",
  "failed",
  "dropped",
  "blocked",
  "retry",
  "unavailable",
  "refused",
];

/** Creates the metrics. @param providers the names of the providers in use */
export function createDeliveryMetrics(
  { registry, counter }: Pick<Metrics, "registry" | "counter">,
  providers: readonly string[],
): DeliveryMetrics {
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
    paused: (provider, isPaused) => paused.set({ provider }, isPaused ? 1 : 0),
    chunkEnded: (provider, seconds) => duration.observe({ provider }, seconds),
  };
}
