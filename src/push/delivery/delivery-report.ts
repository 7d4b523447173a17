/** What operators see of the delivery of one provider's chunks: metrics, the log, and marks at notifications. */

import { Histogram } from "prom-client";
import type { Database } from "../../platform/database/database.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import type { Metrics } from "../../platform/observability/metrics.ts";
import type { ProviderName } from "../provider-settings.ts";
import type { WrittenChunk } from "../queue/store-results.ts";
import type { NextTry } from "./next-try.ts";
import { markRemovalStopped, type Removals } from "./removal-stop.ts";
import { Outcomes } from "./tally.ts";

export type DeliveryMetrics = ReturnType<typeof createDeliveryMetrics>;

const durationBuckets = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/** The outcomes of a message, as they are counted; `dropped`: it was not sent. */
const messageOutcomes = [...Object.keys(new Outcomes().counts), "dropped"];

/** @param providers the names of the providers in use */
export function createDeliveryMetrics(
  { registry, counter }: Pick<Metrics, "registry" | "counter" | "gauges">,
  providers: readonly string[],
) {
  const duration = new Histogram({
    name: "gatepost_push_chunk_duration_seconds",
    help: "Time from taking a chunk of messages to storing the last of its results.",
    labelNames: ["provider"],
    buckets: durationBuckets,
    registers: [registry],
  });
  for (const provider of providers) duration.zero({ provider });
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
    chunkEnded: (provider: string, seconds: number) => duration.observe({ provider }, seconds),
  };
}

interface Dependencies {
  readonly db: Database;
  readonly provider: ProviderName;
  readonly logger: Logger;
  readonly metrics: DeliveryMetrics;
}

/** Reasons that are remembered as logged. Beyond them a reason may be logged twice. */
const maxLoggedReasons = 1_000;
/** Milliseconds of a wait that is logged, if it is longer. */
const longWaitMs = 3_600_000;

export class DeliveryReport {
  readonly #deps: Dependencies;
  /** The notifications and reasons that were logged: what a reason leads to is logged once for a notification. */
  readonly #loggedReasons = new Set<string>();

  constructor(dependencies: Dependencies) {
    this.#deps = dependencies;
  }

  /** Reports outcomes that have just been stored, and what storing them has done to removals. */
  async stored(
    notificationId: string,
    { counts, failures, alarms }: Outcomes,
    { stoppedAt, isHeld }: Removals,
  ): Promise<void> {
    const { metrics, logger, provider } = this.#deps;
    for (const [outcome, count] of Object.entries(counts)) {
      if (count > 0) metrics.messages.inc({ provider, outcome }, count);
    }
    for (const count of alarms.values()) metrics.alarms.inc({ provider }, count);
    for (const reason of alarms.keys()) this.#logFailure(notificationId, reason, true);
    for (const reason of failures.keys()) this.#logFailure(notificationId, reason, false);
    if (stoppedAt) {
      metrics.removalStops.inc({ provider });
      logger.error(
        { notificationId, provider, ...stoppedAt },
        "A provider reports too many users' devices dead, so no more tokens are removed: " +
          "check its project and credentials, then confirm or discard the removals",
      );
    }
    if (isHeld) await this.#markStopped(notificationId);
  }

  /** Counts devices to which nothing was sent. */
  dropped(devices: number): void {
    const { metrics, provider } = this.#deps;
    if (devices > 0) metrics.messages.inc({ provider, outcome: "dropped" }, devices);
  }

  /**
   * Reports that a worker has ended its attempt at a chunk.
   * @param seconds from taking it to storing the last result
   */
  attemptEnded(notificationId: string, dead: readonly WrittenChunk[], seconds: number): void {
    const { metrics, logger, provider } = this.#deps;
    metrics.chunkEnded(provider, seconds);
    for (const { id: chunkId, devices, reason } of dead) {
      metrics.givenUp.inc({ provider });
      if (!this.#isNew("dead", notificationId, reason)) continue;
      logger.error(
        { notificationId, provider, chunkId, devices, reason },
        "Devices of a chunk were given up and are now a dead letter, the first for this reason",
      );
    }
  }

  /** Reports devices that wait for so long that somebody may look for them. */
  waiting(notificationId: string, { devices, afterMs, reason, giveUp }: NextTry): void {
    if (giveUp || afterMs <= longWaitMs || !this.#isNew("waiting", notificationId, reason)) return;
    const { logger, provider } = this.#deps;
    logger.warn(
      { notificationId, provider, devices: devices.length, reason, waitSeconds: Math.ceil(afterMs / 1000) },
      "The push provider wants messages of a notification to wait for more than an hour",
    );
  }

  /** The mark is only shown to operators, so a failure to write it is no reason to send the chunk again. */
  async #markStopped(notificationId: string): Promise<void> {
    const { db, logger } = this.#deps;
    await markRemovalStopped(db, notificationId).catch((err: unknown) => {
      logger.warn({ err, notificationId }, "The stop of removals could not be shown at a notification");
    });
  }

  #logFailure(notificationId: string, reason: string, isAlarm: boolean): void {
    const { logger, provider } = this.#deps;
    if (!this.#isNew("failed", notificationId, reason)) return;
    const fields = { notificationId, provider, reason };
    if (isAlarm) logger.error(fields, "The push provider lacks something for these messages: see the reason");
    else logger.warn(fields, "The push provider rejects messages of a notification");
  }

  /** Whether the same was not logged yet for the notification and the reason. It counts as logged from now on. */
  #isNew(what: "dead" | "failed" | "waiting", notificationId: string, reason: string | null): boolean {
    const key = `${what} ${notificationId} ${reason}`;
    if (this.#loggedReasons.has(key)) return false;
    if (this.#loggedReasons.size >= maxLoggedReasons) this.#loggedReasons.clear();
    this.#loggedReasons.add(key);
    return true;
  }
}
