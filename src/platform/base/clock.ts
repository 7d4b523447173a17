/** The current time. It is passed in, so that a test can set it. */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number;
  /** Set where the time is not real, as in a test that moves it: then no other clock corrects it. */
  readonly isSimulated?: true;
}

export const systemClock: Clock = { now: () => Date.now() };

/** Unix time in whole seconds, as JWT claims have it. */
export function unixSeconds(clock: Clock): number {
  return Math.floor(clock.now() / 1000);
}
