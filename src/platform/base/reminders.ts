/** Limits repeated log messages: the first is logged at once, then with growing pauses of up to a minute. */

const firstPauseMs = 5_000;
const longestPauseMs = 60_000;

interface Reminder {
  readonly dueAt: number;
  readonly pauseMs: number;
}

export class Reminders {
  readonly #now: () => number;
  readonly #reminders = new Map<string, Reminder>();

  /** @param now milliseconds since any fixed point */
  constructor(now = () => performance.now()) {
    this.#now = now;
  }

  /** Whether this text is to be logged now. The pauses are 5 s, doubled each time, up to 60 s. */
  isDue(text: string): boolean {
    const now = this.#now();
    const last = this.#reminders.get(text);
    if (last && now < last.dueAt) return false;
    const pauseMs = last ? Math.min(longestPauseMs, last.pauseMs * 2) : firstPauseMs;
    this.#reminders.set(text, { dueAt: now + pauseMs, pauseMs });
    return true;
  }

  /** Whether this failure is to be logged now; one with another message or cause is another one. */
  isFailureDue(failure: unknown): boolean {
    return this.isDue(failure instanceof Error ? `${failure} ${failure.cause}` : String(failure));
  }
}
