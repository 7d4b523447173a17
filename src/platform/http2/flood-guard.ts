/** Limits a peer's frames that bring no response nearer, above all PING and SETTINGS, which must be acknowledged. */
import { ConnectionError, errorCode } from "./protocol.ts";

/** Most such frames between two responses within the time below. */
const maxIdleFrames = 10_000;
const withinMs = 10_000;

export class FloodGuard {
  #frames = 0;
  #since = performance.now();

  /** Counts a frame. @throws ConnectionError with ENHANCE_YOUR_CALM if there are too many */
  count(): void {
    this.#frames += 1;
    if (this.#frames <= maxIdleFrames) return;
    const now = performance.now();
    if (now - this.#since < withinMs)
      throw new ConnectionError(errorCode.enhanceYourCalm, "a flood of frames");
    this.#frames = 0;
    this.#since = now;
  }

  reset(): void {
    // The time is only looked at when there are too many, so a flood is noticed after twice as many at the latest.
    this.#frames = 0;
  }
}
