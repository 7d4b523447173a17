/** Limits repeated log messages: the first is logged at once, then with growing pauses of up to a minute. */
import { LRUCache } from "lru-cache";

const firstPauseMs = 5_000;
const longestPauseMs = 60_000;

interface Reminder {
  readonly dueAt: number;
  readonly pauseMs: number;
  /** How often it was not due since it was. */
  repeats: number;
}

/** Texts that are told apart; of more, one that comes seldom is due more often. */
const maxTexts = 500;

export class Reminders {
  readonly #now: () => number;
  readonly #firstPauseMs: number;
  readonly #reminders = new LRUCache<string, Reminder>({ max: maxTexts });

  /** @param now milliseconds since any fixed point @param firstPause milliseconds; 5 s unless given */
  constructor(now = () => performance.now(), firstPause = firstPauseMs) {
    this.#now = now;
    this.#firstPauseMs = firstPause;
  }

  /** Whether this text is to be logged now. The pauses are 5 s, doubled each time, up to 60 s. */
  isDue(text: string): boolean {
    return this.repeats(text) === 0;
  }

  /** How often this text was not due since it was, this time included; 0 if it is due now. */
  repeats(text: string): number {
    const now = this.#now();
    const last = this.#reminders.get(text);
    if (last && now < last.dueAt) return ++last.repeats;
    const pauseMs = last ? Math.min(longestPauseMs, last.pauseMs * 2) : this.#firstPauseMs;
    this.#reminders.set(text, { dueAt: now + pauseMs, pauseMs, repeats: 0 });
    return 0;
  }

  /** Whether this failure is to be logged now; one with another message or cause is another one. */
  isFailureDue(failure: unknown): boolean {
    return this.isDue(failure instanceof Error ? `${failure} ${failure.cause}` : String(failure));
  }
}
