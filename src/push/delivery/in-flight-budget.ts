/**
 * How many messages a process may have in flight to a provider. The chunks that are sent at once share it: what has
 * begun to wait for room first gets it first, so that chunks end one after the other.
 */
export class InFlightBudget {
  #free: number;
  /** What waits for room, in the order in which it began to. */
  readonly #waiting = new Set<Waiting>();

  constructor(messages: number) {
    this.#free = messages;
  }

  /** Takes room for a message. @returns whether there was any; otherwise `waiting` is told once there is */
  take(waiting: Waiting): boolean {
    if (this.#free === 0) {
      this.#waiting.add(waiting);
      return false;
    }
    this.#free -= 1;
    return true;
  }

  /** Needs no room any more. */
  leave(waiting: Waiting): void {
    this.#waiting.delete(waiting);
  }

  /** Gives the room of a message back. */
  giveBack(): void {
    this.#free += 1;
    for (const waiting of this.#waiting) {
      if (this.#free === 0) return;
      waiting.onRoom();
    }
  }
}

interface Waiting {
  /** There is room: takes what it needs of it, and leaves if it needs no more. */
  onRoom(): void;
}
