/**
 * The self-test of a provider: whether it accepts our credentials. A test that is running serves all callers; no result
 * is kept.
 */
import type { Outcome, PushProvider } from "../providers/provider.ts";

export class SelfTest {
  readonly #provider: PushProvider;
  #running: Promise<Outcome> | undefined;

  constructor(provider: PushProvider) {
    this.#provider = provider;
  }

  /** Runs the test, or waits for the one that is running. @returns undefined if the provider has no self-test */
  async run(): Promise<Outcome | undefined> {
    this.#running ??= this.#provider.selfTest?.().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  /**
   * Checks a `refused` outcome of one message. If the provider accepts our credentials, the message has failed by
   * itself. If it refuses them, the outcome is confirmed. If the test itself fails, its outcome is the message's.
   */
  async confirm(refused: Extract<Outcome, { kind: "refused" }>): Promise<Outcome> {
    const outcome = await this.run();
    if (outcome === undefined) return refused;
    if (isPassed(outcome)) return { kind: "retry", isOwn: true, reason: refused.reason };
    return asServiceOutcome(outcome).kind === "refused" ? { ...refused, isConfirmed: true } : outcome;
  }
}

/** Whether the provider has accepted our credentials. */
export function isPassed({ kind }: Outcome): boolean {
  return kind === "sent" || kind === "dead" || kind === "failed" || kind === "blocked";
}

/** The outcome of a self-test, as one of the service: a self-test uses no user's token, so a refusal is about us. */
export function asServiceOutcome(outcome: Outcome): Outcome {
  if (outcome.kind !== "foreign" && outcome.kind !== "refused") return outcome;
  return { kind: "refused", isConfirmed: true, reason: outcome.reason };
}
