/** The times and thresholds of delivery. A deployment has these; tests have shorter ones. */
export interface DeliveryRules {
  /** Milliseconds between looks whether what is being sent is still to be sent. */
  readonly lookMs: number;
  /** Milliseconds that a chunk is sent for at most; then it is written down, and the rest of it queues again. */
  readonly longestMs: number;
  /** Milliseconds for which the writing down of a chunk is tried while the database is away. */
  readonly settleForMs: number;

  /** Milliseconds before the first retry of devices that errors left; doubled each time. */
  readonly firstRetryMs: number;
  readonly longestRetryMs: number;
  /** Retries after which a chunk is given up. */
  readonly maxRetries: number;
  /** Milliseconds from its first attempt after which a chunk that has errors is given up. */
  readonly giveUpMs: number;

  /** Retry outcomes in a row that count as a provider that is away. */
  readonly retriesInARow: number;
  /** Milliseconds of the provider's first pause; doubled with each failure in a row. */
  readonly firstPauseMs: number;
  readonly longestPauseMs: number;
  /** Milliseconds of the pause after the provider refused us. */
  readonly refusedPauseMs: number;
  /** Messages that are sent first, to see whether a provider that failed works again. */
  readonly probeMessages: number;
  /** The least share of the ceiling that failures slow down to; each halves it. */
  readonly leastShare: number;
  /** What a chunk that went well adds to the share. */
  readonly shareStep: number;
  /** Part of a chunk's messages that errors may leave in one that went well: providers that work have some. */
  readonly toleratedErrors: number;

  /** The share of the ceiling that a notification begins with. */
  readonly rampFloor: number;
  /** Milliseconds of sending that are reserved at once: how fast changes of the pace are noticed. */
  readonly sliceMs: number;
  /** Milliseconds between the moments at which messages of a slice are let go. */
  readonly tickMs: number;

  /** Dead tokens of a notification and provider that are removed whatever share of it they are. */
  readonly leastDead: number;
}

export const deliveryRules: DeliveryRules = {
  lookMs: 500,
  longestMs: 15_000,
  settleForMs: 60_000,
  firstRetryMs: 10_000,
  longestRetryMs: 600_000,
  maxRetries: 8,
  giveUpMs: 3_600_000,
  retriesInARow: 20,
  firstPauseMs: 5_000,
  longestPauseMs: 300_000,
  refusedPauseMs: 300_000,
  probeMessages: 10,
  leastShare: 0.1,
  shareStep: 0.1,
  toleratedErrors: 0.05,
  rampFloor: 0.05,
  sliceMs: 500,
  tickMs: 5,
  leastDead: 50,
};

/** A number from 0 to 1. */
export type Random = () => number;

/** So long or up to half longer: what failed together is not tried again together. */
export function withJitter(milliseconds: number, random: Random): number {
  return milliseconds * (1 + random() / 2);
}
