/**
 * The budget of messages that a process may have in flight to a provider. The chunks that are sent at once share it:
 * the chunk that has waited longest for room gets it first, so that chunks end one after the other. Retries get the
 * room for which no other chunk waits, and never all of it.
 */
export class InFlightBudget {
  #free: number;
  #freeForRetries: number;
  /** The chunks that wait for room, in the order in which they began to; retries apart from the others. */
  readonly #waiting = new Set<Waiting>();
  readonly #waitingRetries = new Set<Waiting>();

  /** @param retryShare the share of the messages that may be retries */
  constructor(messages: number, retryShare: number) {
    this.#free = messages;
    this.#freeForRetries = Math.ceil(messages * retryShare);
  }

  /** How many messages there is room for. */
  get free(): number {
    return this.#free;
  }

  #hasRoom({ isRetry }: Waiting): boolean {
    return this.#free > 0 && !(isRetry && this.#freeForRetries === 0);
  }

  /** Takes room for a message. @returns whether there was any; otherwise `onRoom` is called once there is */
  take(waiting: Waiting): boolean {
    if (!this.#hasRoom(waiting)) {
      this.#queueOf(waiting).add(waiting);
      return false;
    }
    this.#free -= 1;
    if (waiting.isRetry) this.#freeForRetries -= 1;
    return true;
  }

  /** Waits for room no more. */
  leave(waiting: Waiting): void {
    this.#queueOf(waiting).delete(waiting);
  }

  /** Gives the room of a message back. @param from the one that had taken it */
  giveBack(from: Waiting): void {
    this.#free += 1;
    if (from.isRetry) this.#freeForRetries += 1;
    for (const waiting of this.#waiting) {
      if (this.#free === 0) return;
      waiting.onRoom();
    }
    for (const waiting of this.#waitingRetries) {
      if (this.#free === 0 || this.#freeForRetries === 0) return;
      waiting.onRoom();
    }
  }

  #queueOf({ isRetry }: Waiting): Set<Waiting> {
    return isRetry ? this.#waitingRetries : this.#waiting;
  }
}

/** The messages of a chunk, of which some may wait for room. */
interface Waiting {
  /** Whether they were tried before. */
  readonly isRetry: boolean;
  /** Called when there is room: takes what is needed of it, and calls `leave` if no more is. */
  onRoom(): void;
}
