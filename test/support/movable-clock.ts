import type { Clock } from "../../src/platform/base/clock.ts";

/** A clock that stands still until it is moved. */
export interface MovableClock extends Clock {
  /** @param seconds may be negative */
  move(seconds: number): void;
}

export function movableClock(): MovableClock {
  let now = Date.now();
  return {
    isSimulated: true,
    now: () => now,
    move(seconds) {
      now += seconds * 1000;
    },
  };
}
