/** The current time. It is passed in, so that a test can set it. */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number;
}

export const systemClock: Clock = { now: () => Date.now() };

/** Unix time in whole seconds, as JWT claims have it. */
export function unixSeconds(clock: Clock): number {
  return Math.floor(clock.now() / 1000);
}
