/**
 * The flow of one chunk's messages to the provider: as many in flight as it takes, no more than were let go.
 * Knows nothing of time or of what outcomes mean.
 */
import type { Outcome, Recipient, Send } from "../providers/provider.ts";

interface FlowOptions {
  readonly send: Send;
  readonly recipient: (index: number) => Recipient;
  readonly maxInFlight: number;
  /** Told of each message once. May stop the flow. */
  readonly onOutcome: (index: number, outcome: Outcome) => void;
}

export class Flow {
  readonly #options: FlowOptions;
  #next = 0;
  #released = 0;
  #inFlight = 0;
  #isStopped = false;
  #whenStarted: (() => void) | undefined;
  #whenIdle: (() => void) | undefined;

  constructor(options: FlowOptions) {
    this.#options = options;
  }

  /** Lets messages go, the first `count` of the chunk in all. */
  release(count: number): void {
    this.#released = Math.max(this.#released, count);
    this.#pump();
  }

  /** No further message is sent; those in flight finish. */
  stop(): void {
    this.#isStopped = true;
    this.#wake();
  }

  /** Resolves when every message that was let go is on its way, or the flow has been stopped. One caller at a time. */
  started(): Promise<void> {
    return new Promise((resolve) => {
      this.#whenStarted = resolve;
      this.#wake();
    });
  }

  /** Resolves when nothing is in flight, and nothing that was let go is left or the flow has been stopped. */
  idle(): Promise<void> {
    return new Promise((resolve) => {
      this.#whenIdle = resolve;
      this.#wake();
    });
  }

  #pump(): void {
    const { maxInFlight } = this.#options;
    while (!this.#isStopped && this.#next < this.#released && this.#inFlight < maxInFlight) {
      this.#inFlight += 1;
      void this.#sendOne(this.#next++);
    }
    this.#wake();
  }

  #wake(): void {
    if (!this.#isStopped && this.#next < this.#released) return;
    this.#whenStarted?.();
    this.#whenStarted = undefined;
    if (this.#inFlight > 0) return;
    this.#whenIdle?.();
    this.#whenIdle = undefined;
  }

  async #sendOne(index: number): Promise<void> {
    const { send, recipient, onOutcome } = this.#options;
    let outcome: Outcome;
    try {
      outcome = await send(recipient(index));
    } catch (err) {
      // A defect of the sender's, which never throws. Nobody may wait for this message for ever.
      outcome = {
        kind: "retry",
        reason: `the sender failed: ${err instanceof Error ? err.name : "unknown"}`,
      };
    }
    this.#inFlight -= 1;
    onOutcome(index, outcome);
    this.#pump();
  }
}
