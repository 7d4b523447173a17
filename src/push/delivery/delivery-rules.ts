/** The times and thresholds of delivery. Tests use shorter times. */
export const deliveryRules = {
  /** Milliseconds between checks whether the chunks being sent should still be sent. */
  checkIntervalMs: 250,
  /** Milliseconds since a chunk was last known to be sendable after which none of its messages is begun. */
  maxUncheckedMs: 1_000,
  /**
   * Milliseconds for which messages of a chunk are reserved at most; then its rest is queued again. A notification that
   * is slow, as its ramp has just begun, keeps no other one waiting for longer.
   */
  maxSendingMs: 2_000,
  /** Milliseconds in which a notification's own rate must let a chunk go on: one that would wait for longer is WAITING. */
  maxRateWaitMs: 2_000,
  /** Milliseconds before the reserved time of a chunk's last message at which the next chunk is loaded. */
  loadAheadMs: 100,
  /** Chunks that a process sends at once to a provider, at most. Most of them only wait for their last responses. */
  maxOpenChunks: 200,
  /**
   * The share of these chunks, and of the messages in flight, that may be retries. So devices whose messages never get
   * a response, however many, leave room for messages that were not tried.
   */
  retryShare: 0.75,
  /** Milliseconds from a take that found few messages to the next one. */
  takeGapMs: 10,
  /** Messages with which a take is worth its statement, however much room there was. */
  fewMessages: 100,
  /** Milliseconds of sending a chunk after which its outcomes are first stored, before all of them are there. */
  storeAfterMs: 250,
  /** Milliseconds between the later times, at most: each wait is twice as long as the one before, up to this. */
  storeEveryMs: 1_000,
  /** Milliseconds for which a process holds a chunk at most: then devices without a response go back to the queue. */
  maxHeldMs: 3_600_000,

  /** Milliseconds before the first retry after errors; doubled with each retry. */
  firstRetryMs: 10_000,
  longestRetryMs: 600_000,
  /** Retries after which a chunk is given up. */
  maxRetries: 8,
  /** Milliseconds of a chunk's own failures, without waits for its provider, after which it is given up. */
  giveUpMs: 3_600_000,

  /** Failures in a streak, over all chunks, after which a service counts as unavailable. */
  retriesInARow: 20,
  /** Milliseconds since a service last worked for which a message's failure counts as the message's own. */
  evidenceMs: 60_000,
  /** Milliseconds of a service's first pause; doubled with each failure in a row. */
  firstPauseMs: 5_000,
  longestPauseMs: 300_000,
  /** Milliseconds of the longest pause where one user's messages alone show that the service still fails. */
  longestDoubtMs: 60_000,
  /** Milliseconds of the pause of a service that refuses us. */
  refusedPauseMs: 300_000,
  /** Milliseconds of the longest pause of this process alone. Then it finds out whether its fault is gone. */
  longestOwnPauseMs: 30_000,
  /** Messages that are sent first to find out whether a service that was paused works again. */
  probeMessages: 10,
  /** The smallest share of the rate limit that failures lead to; each failure halves the share. */
  leastShare: 0.1,
  /** Added to the share by each chunk that went well. */
  shareStep: 0.1,
  /** Share of a chunk's messages that may meet errors in a chunk that went well: working providers cause a few. */
  toleratedErrors: 0.05,

  /** The share of the rate limit that a notification's ramp begins with. */
  rampFloor: 0.05,
  /** Milliseconds of sending that one reservation covers: how soon a change of the rate takes effect. */
  sliceMs: 500,
  /** Milliseconds between releases of a reservation's messages. */
  tickMs: 5,

  /** Users whose devices may always be reported dead within a day, whatever their share. */
  leastDead: 50,
  /** Users about whom a provider has responded last, and on whom the safety stop looks back. */
  judgedUsers: 1_000,
};
export type DeliveryRules = Readonly<typeof deliveryRules>;

/** A number from 0 to 1. */
export type Random = () => number;

/** Lengthens a wait by up to a half at random, so that what failed together is not retried together. */
export function withJitter(milliseconds: number, random: Random): number {
  return milliseconds * (1 + random() / 2);
}
