/** Counts the messages in flight, so that closing a provider can wait for them. */
import type { Send } from "../provider.ts";

export class InFlight {
  #count = 0;
  #onEmpty: (() => void) | undefined;

  /** Counts the messages of a sender. */
  count(send: Send): Send {
    return async (recipient) => {
      this.#count += 1;
      try {
        return await send(recipient);
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
