/** Probes a host again and again, however long each probe takes. */
import { setTimeout as delay } from "node:timers/promises";

/** Milliseconds between the beginnings of two probes, a twentieth more or less. */
const periodMs = 1_000;
/** Probes in flight, at most. One takes two seconds at most, so a third would find out nothing sooner. */
const maxInFlight = 2;

export class PeriodicProbe {
  readonly #probe: () => Promise<unknown>;
  readonly #isNeeded: () => boolean;
  readonly #inFlight = new Set<Promise<unknown>>();
  #isRunning = false;

  /** @param probe never rejects @param isNeeded asked before each probe */
  constructor(probe: () => Promise<unknown>, isNeeded: () => boolean) {
    this.#probe = probe;
    this.#isNeeded = isNeeded;
  }

  /** Probes until that is no longer needed, and resolves then. Has no effect while it runs already. */
  async start(): Promise<void> {
    if (this.#isRunning) return;
    this.#isRunning = true;
    // Processes that have found a primary at the same time do not go on to probe at the same time.
    let pauseMs = periodMs * (0.5 + Math.random() / 2);
    for (;;) {
      await delay(pauseMs, undefined, { ref: false });
      if (this.#inFlight.size >= maxInFlight) await Promise.race(this.#inFlight);
      if (!this.#isNeeded()) break;
      const probe = this.#probe();
      this.#inFlight.add(probe);
      void probe.then(() => this.#inFlight.delete(probe));
      pauseMs = periodMs * (0.95 + Math.random() / 10);
    }
    this.#isRunning = false;
  }
}
