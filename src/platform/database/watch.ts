/** Looking at a host again and again, however long each look takes. */
import { setTimeout as delay } from "node:timers/promises";

/** Milliseconds between the beginnings of two looks, a twentieth more or less. */
const periodMs = 1_000;
/**
 * A look takes two seconds at most. With two in flight the next one begins when the first of them ends, which is 1.05
 * seconds after the second began at the latest: so a third would tell nothing sooner.
 */
const maxInFlight = 2;

export class Watch {
  readonly #look: () => Promise<unknown>;
  readonly #isNeeded: () => boolean;
  readonly #inFlight = new Set<Promise<unknown>>();
  #isOn = false;

  /**
   * @param look never rejects
   * @param isNeeded asked before each look
   */
  constructor(look: () => Promise<unknown>, isNeeded: () => boolean) {
    this.#look = look;
    this.#isNeeded = isNeeded;
  }

  /** Goes on until it is needed no more. */
  async start(): Promise<void> {
    if (this.#isOn) return;
    this.#isOn = true;
    // Processes that have found a primary at the same time do not go on to look at the same time.
    let pauseMs = periodMs * (0.5 + Math.random() / 2);
    for (;;) {
      await delay(pauseMs, undefined, { ref: false });
      if (this.#inFlight.size >= maxInFlight) await Promise.race(this.#inFlight);
      if (!this.#isNeeded()) break;
      const look = this.#look();
      this.#inFlight.add(look);
      void look.then(() => this.#inFlight.delete(look));
      pauseMs = periodMs * (0.95 + Math.random() / 10);
    }
    this.#isOn = false;
  }
}
