/**
 * The self-test of a provider: whether it accepts our credentials. One test at a time serves all who ask meanwhile,
 * since what makes one message ask makes many. No result is kept: credentials are put right, or taken away, at any time.
 */
import type { Outcome, PushProvider } from "../providers/provider.ts";

export class SelfTest {
  readonly #provider: PushProvider;
  #running: Promise<Outcome> | undefined;

  constructor(provider: PushProvider) {
    this.#provider = provider;
  }

  /** Its outcome; undefined if the provider has no self-test. */
  async run(): Promise<Outcome | undefined> {
    this.#running ??= this.#provider.selfTest?.().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  /**
   * Checks a `refused` outcome of one message. If the provider accepts our credentials, only this message was refused, or
   * all were until a moment ago: it is tried again as one that failed by itself. If the provider cannot be asked, nobody
   * knows, and the message waits.
   */
  async confirm(refused: Extract<Outcome, { kind: "refused" }>): Promise<Outcome> {
    const outcome = await this.run();
    if (outcome === undefined) return refused;
    if (isPassed(outcome)) return { kind: "retry", isOwn: true, reason: refused.reason };
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
