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
      this.#owe(counter);
      throw error;
    }
  }

  /** Counts what is owed. Those who ask meanwhile wait for that. @throws the error of the counters */
  async settle(counter: Counter): Promise<void> {
    const { subject } = counter;
    let settling = this.#settling.get(subject);
    if (!settling) {
      if (!this.#owed.has(subject)) return;
      settling = this.#settleOnce(counter).finally(() => this.#settling.delete(subject));
      this.#settling.set(subject, settling);
    }
    await settling;
  }

  async #settleOnce(counter: Counter): Promise<void> {
    const owed = this.#owed.get(counter.subject) ?? 0;
    this.#owed.delete(counter.subject);
    await Promise.all(Array.from({ length: owed }, () => this.count(counter)));
  }

  /** No more is owed than fills the counter. */
  #owe({ rule, subject }: Counter): void {
    this.#owed.set(subject, Math.min((this.#owed.get(subject) ?? 0) + 1, rule.failures));
  }
}
