/** Messages on their way: what closing a provider waits for. */
import type { Send } from "../provider.ts";

export class InFlight {
  #count = 0;
  #onEmpty: (() => void) | undefined;

  /** The same, counted, and never rejecting: what was thrown would be thrown again for the same message. */
  count(send: Send): Send {
    return async (recipient) => {
      this.#count += 1;
      try {
        return await send(recipient);
      } catch (error) {
        return { kind: "failed", reason: error instanceof Error ? error.name : "unknown" };
      } finally {
        this.#count -= 1;
        if (this.#count === 0) this.#onEmpty?.();
      }
    };
  }

  /** Resolves when there is none. */
  async ended(): Promise<void> {
    if (this.#count === 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#onEmpty = resolve;
    await promise;
  }
}
