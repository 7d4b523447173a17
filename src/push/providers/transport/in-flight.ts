/** Counts the messages in flight, so that closing a provider can wait for them. */
import type { Send } from "../provider.ts";

export class InFlight {
  #count = 0;
  #onEmpty: (() => void) | undefined;

  /** Counts the messages of a sender. A sender that throws would throw again for the same message: outcome `failed`. */
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

  /** Resolves when no message is in flight. */
  async ended(): Promise<void> {
    if (this.#count === 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#onEmpty = resolve;
    await promise;
  }
}
