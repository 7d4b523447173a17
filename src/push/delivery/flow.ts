/**
 * The flow of one chunk's messages to the provider: only released messages, and only as many at once as the budget of
 * the provider has room for. Timing and the meaning of outcomes are decided elsewhere.
 */
import type { Outcome } from "../providers/provider.ts";
import type { InFlightBudget } from "./in-flight-budget.ts";

interface FlowOptions {
  /** Whether a message may begin at the moment. If not, released ones wait until `onRoom` is called. */
  readonly mayBegin: () => boolean;
  /** Whether a message has missed its time, and may not begin before it is released anew. */
  readonly isLate: (index: number) => boolean;
  /** Sends a message. @returns undefined if it is not sent now */
  readonly send: (index: number) => Promise<Outcome> | undefined;
  readonly budget: InFlightBudget;
  /** Whether the messages were tried before. */
  readonly isRetry: boolean;
  /** Called if `send` throws: a defect. */
  readonly onException: (thrown: unknown) => void;
  /** Called once for each message that is sent. May stop the flow. */
  readonly onOutcome: (index: number, outcome: Outcome) => void;
}

export class Flow {
  readonly #options: FlowOptions;
  #next = 0;
  #released = 0;
  #inFlight = 0;
  #isStopped = false;
  /** Whether messages could not begin when they were to, and none has begun since. */
  #wasBarred = false;
  #whenStarted: (() => void) | undefined;
  #whenIdle: (() => void) | undefined;

  constructor(options: FlowOptions) {
    this.#options = options;
  }

  get isRetry(): boolean {
    return this.#options.isRetry;
  }

  /** How many of the chunk's first messages were begun, those included that `send` did not send. */
  get begun(): number {
    return this.#next;
  }

  /**
   * Releases the chunk's first `count` messages, counted from its beginning.
   * @returns false if they have missed their time: those that have not begun are to be released anew
   */
  release(count: number): boolean {
    this.#released = Math.max(this.#released, count);
    this.onRoom();
    return this.#released >= count;
  }

  /** No further message is sent; those in flight finish. */
  stop(): void {
    this.#isStopped = true;
    this.onRoom();
  }

  /** Resolves when no released message is left that has not begun, or the flow is stopped. One caller at a time. */
  started(): Promise<void> {
    return new Promise((resolve) => {
      this.#whenStarted = resolve;
      this.#wake();
    });
  }

  /** Resolves when nothing is in flight and no released message is left, or the flow is stopped. */
  idle(): Promise<void> {
    return new Promise((resolve) => {
      this.#whenIdle = resolve;
      this.#wake();
    });
  }

  /**
   * Sends released messages, as far as they may begin and the budget has room. Messages that could not begin for a
   * while, and have missed their time, are released no more: all that has become due meanwhile would go out at once.
   * Messages that wait for room keep their time, since room comes bit by bit, and other processes could not have used
   * that time.
   */
  onRoom(): void {
    const { budget, mayBegin, isLate } = this.#options;
    while (this.hasReleased) {
      if (!mayBegin()) {
        this.#wasBarred = true;
        break;
      }
      if (this.#wasBarred && isLate(this.#next)) {
        this.#released = this.#next;
        break;
      }
      this.#wasBarred = false;
      if (!budget.take(this)) return;
      this.#inFlight += 1;
      void this.#sendOne(this.#next++);
    }
    budget.leave(this);
    this.#wake();
  }

  /** Whether released messages wait to begin. */
  get hasReleased(): boolean {
    return !this.#isStopped && this.#next < this.#released;
  }

  #wake(): void {
    if (this.hasReleased) return;
    this.#whenStarted?.();
    this.#whenStarted = undefined;
    if (this.#inFlight > 0) return;
    this.#whenIdle?.();
    this.#whenIdle = undefined;
  }

  async #sendOne(index: number): Promise<void> {
    const { send, budget, onException, onOutcome } = this.#options;
    let outcome: Outcome | undefined;
    try {
      outcome = await send(index);
    } catch (err) {
      onException(err);
      const reason = `the sender failed: ${err instanceof Error ? err.name : "unknown"}`;
      outcome = { kind: "retry", isOwn: true, reason };
    }
    this.#inFlight -= 1;
    if (outcome) onOutcome(index, outcome);
    budget.giveBack(this);
    this.#wake();
  }
}
