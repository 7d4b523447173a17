/**
 * The self-test of a provider: whether it accepts our credentials. One test at a time serves all who ask, and its
 * result is used for a moment, since what makes one message ask makes many.
 */
import type { Outcome, PushProvider } from "../providers/provider.ts";

/** Milliseconds for which a result is used. */
const freshMs = 5_000;

export class SelfTest {
  readonly #provider: PushProvider;
  #running: Promise<Outcome> | undefined;
  #last: { readonly outcome: Outcome; readonly until: number } | undefined;

  constructor(provider: PushProvider) {
    this.#provider = provider;
  }

  /** The outcome, at most some seconds old; undefined if the provider has no self-test. */
  async run(): Promise<Outcome | undefined> {
    if (this.#last && performance.now() < this.#last.until) return this.#last.outcome;
    this.#running ??= this.#test()?.finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  #test(): Promise<Outcome> | undefined {
    return this.#provider.selfTest?.().then((outcome) => {
      this.#last = { outcome, until: performance.now() + freshMs };
      return outcome;
    });
  }

  /**
   * Checks a `refused` outcome of one message. The provider accepts our credentials: then only this message is refused.
   * It cannot be asked: then nobody knows, and the message waits.
   */
  async confirm(refused: Extract<Outcome, { kind: "refused" }>): Promise<Outcome> {
    const outcome = await this.run();
    if (outcome === undefined) return refused;
    if (isPassed(outcome)) return { kind: "failed", reason: refused.reason, isAlarming: true };
    return isRefusal(outcome) ? refused : outcome;
  }
}

/** Whether the provider has accepted our credentials. */
export function isPassed({ kind }: Outcome): boolean {
  return kind === "sent" || kind === "dead" || kind === "failed";
}

function isRefusal({ kind }: Outcome): boolean {
  return kind === "refused" || kind === "foreign";
}

/** The outcome as one of the service itself: its own message is no token of a user, so `foreign` is about us. */
export function asServiceOutcome(outcome: Outcome): Outcome {
  return outcome.kind === "foreign" ? { kind: "refused", reason: outcome.reason } : outcome;
}
