/** The times and thresholds of delivery. Deployments use `deliveryRules`; tests use shorter times. */
export interface DeliveryRules {
  /** Milliseconds between checks whether the chunks being sent should still be sent. */
  readonly checkIntervalMs: number;
  /** Milliseconds since a chunk was last known to be sendable after which none of its messages is begun. */
  readonly maxUncheckedMs: number;
  /**
   * Milliseconds for which messages of a chunk are reserved at most; then its rest is queued again. A notification that
   * is slow, as its ramp has just begun, keeps no other one waiting for longer.
   */
  readonly maxSendingMs: number;
  /** Milliseconds before the reserved time of a chunk's last message at which the next chunk is loaded. */
  readonly loadAheadMs: number;
  /** Chunks that a process sends at once to a provider, at most. Most of them only wait for their last responses. */
  readonly maxOpenChunks: number;
  /**
   * The share of these chunks, and of the messages in flight, that may be retries. So devices whose messages never get
   * a response, however many, leave room for messages that were not tried.
   */
  readonly retryShare: number;
  /** Milliseconds of sending a chunk after which its outcomes are first stored, before all of them are there. */
  readonly storeAfterMs: number;
  /** Milliseconds between the later times, at most: each wait is twice as long as the one before, up to this. */
  readonly storeEveryMs: number;
  /** Milliseconds for which a process holds a chunk at most: then devices without a response go back to the queue. */
  readonly maxHeldMs: number;

  /** Milliseconds before the first retry after errors; doubled with each retry. */
  readonly firstRetryMs: number;
  readonly longestRetryMs: number;
  /** Retries after which a chunk is given up. */
  readonly maxRetries: number;
  /** Milliseconds of a chunk's own failures, without waits for its provider, after which it is given up. */
  readonly giveUpMs: number;

  /** Failures in a streak, over all chunks, after which a service counts as unavailable. */
  readonly retriesInARow: number;
  /** Milliseconds since a service last worked for which a message's failure counts as the message's own. */
  readonly evidenceMs: number;
  /** Milliseconds of a service's first pause; doubled with each failure in a row. */
  readonly firstPauseMs: number;
  readonly longestPauseMs: number;
  /** Milliseconds of the longest pause where one user's messages alone show that the service still fails. */
  readonly longestDoubtMs: number;
  /** Milliseconds of the pause of a service that refuses us. */
  readonly refusedPauseMs: number;
  /** Messages that are sent first to find out whether a service that was paused works again. */
  readonly probeMessages: number;
  /** The smallest share of the rate limit that failures lead to; each failure halves the share. */
  readonly leastShare: number;
  /** Added to the share by each chunk that went well. */
  readonly shareStep: number;
  /** Share of a chunk's messages that may meet errors in a chunk that went well: working providers cause a few. */
  readonly toleratedErrors: number;

  /** The share of the rate limit that a notification's ramp begins with. */
  readonly rampFloor: number;
  /** Milliseconds of sending that one reservation covers: how soon a change of the rate takes effect. */
  readonly sliceMs: number;
  /** Milliseconds, at least, between two looks at which of the reserved messages are due. */
  readonly tickMs: number;

  /** Users whose devices may always be reported dead within a day, whatever their share. */
  readonly leastDead: number;
  /** Users about whom a provider has responded last, and on whom the safety stop looks back. */
  readonly judgedUsers: number;
}

export const deliveryRules: DeliveryRules = {
  checkIntervalMs: 250,
  maxUncheckedMs: 1_000,
  maxSendingMs: 2_000,
  loadAheadMs: 100,
  maxOpenChunks: 200,
  retryShare: 0.75,
  storeAfterMs: 250,
  storeEveryMs: 1_000,
  maxHeldMs: 3_600_000,
  firstRetryMs: 10_000,
  longestRetryMs: 600_000,
  maxRetries: 8,
  giveUpMs: 3_600_000,
  retriesInARow: 20,
  evidenceMs: 60_000,
  firstPauseMs: 5_000,
  longestPauseMs: 300_000,
  longestDoubtMs: 60_000,
  refusedPauseMs: 300_000,
  probeMessages: 10,
  leastShare: 0.1,
  shareStep: 0.1,
  toleratedErrors: 0.05,
  rampFloor: 0.05,
  sliceMs: 500,
  tickMs: 5,
  leastDead: 50,
  judgedUsers: 1_000,
};

/** A number from 0 to 1. */
export type Random = () => number;

/** Lengthens a wait by up to a half at random, so that what failed together is not retried together. */
export function withJitter(milliseconds: number, random: Random): number {
  return milliseconds * (1 + random() / 2);
}
