import type { AttemptCounters, Counter } from "./attempt-counters.ts";

/**
 * Counts failures after they are known. One that cannot be counted is owed to its counter: where nothing is judged
 * before that is settled, nobody guesses on because counting fails.
 */
export class Failures {
  readonly #counters: Pick<AttemptCounters, "count">;
  /** By the subject of the counter. */
  readonly #owed = new Map<string, number>();
  readonly #settling = new Map<string, Promise<void>>();

  constructor(counters: Pick<AttemptCounters, "count">) {
    this.#counters = counters;
  }

  /** Counts a failure. @throws the error of the counters; the failure is owed then */
  async count(counter: Counter): Promise<void> {
    try {
      await this.#counters.count(counter);
    } catch (error) {
      this.#owe(counter, 1);
      throw error;
    }
  }

  /** Counts what is owed; those who ask at the same time share that. @throws the error of the counters */
  async settle(counter: Counter): Promise<void> {
    const { subject } = counter;
    if (!this.#owed.has(subject)) return;
    const settling = this.#settling.get(subject) ?? this.#settleOnce(counter);
    this.#settling.set(subject, settling);
    try {
      await settling;
    } finally {
      this.#settling.delete(subject);
    }
  }

  async #settleOnce(counter: Counter): Promise<void> {
    const owed = this.#owed.get(counter.subject) ?? 0;
    this.#owed.delete(counter.subject);
    await Promise.all(Array.from({ length: owed }, () => this.count(counter)));
  }

  /** No more than fill the counter. */
  #owe({ rule, subject }: Counter, failures: number): void {
    this.#owed.set(subject, Math.min((this.#owed.get(subject) ?? 0) + failures, rule.failures));
  }
}
