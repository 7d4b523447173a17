/** The time of a load that counts: after a warm-up, until the load is told to stop. */
import { setTimeout } from "node:timers/promises";
import { percentiles } from "./percentiles.ts";

const warmUpMs = 1_500;

export class MeasuringWindow {
  readonly #latencies: number[] = [];
  #isOpen = false;
  #isOver = false;

  /** Whether no further request is to be sent. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** @param sentAt by performance.now() */
  answered(sentAt: number): void {
    if (this.#isOpen) this.#latencies.push(performance.now() - sentAt);
  }

  /** Waits until the time is over. @returns answers a second, and their latencies in milliseconds */
  async measure(seconds: number): Promise<{ perSecond: number } & ReturnType<typeof percentiles>> {
    await setTimeout(warmUpMs);
    this.#isOpen = true;
    const openedAt = performance.now();
    await setTimeout(seconds * 1000);
    this.#isOpen = false;
    const perSecond = (this.#latencies.length * 1000) / (performance.now() - openedAt);
    this.#isOver = true;
    return { perSecond, ...percentiles(this.#latencies) };
  }
}
