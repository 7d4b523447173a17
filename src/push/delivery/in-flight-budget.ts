/**
 * How many messages a process may have in flight to a provider. The chunks that are sent at once share it: what has
 * begun to wait for room first gets it first, so that chunks end one after the other. What comes last, as it was tried
 * before, gets what nobody else waits for, and never all of the room.
 */
export class InFlightBudget {
  #free: number;
  #freeForLast: number;
  /** What waits for room, in the order in which it began to. */
  readonly #waiting = new Set<Waiting>();
  readonly #waitingLast = new Set<Waiting>();

  /** @param lastShare the share of the messages that may be of what comes last */
  constructor(messages: number, lastShare: number) {
    this.#free = messages;
    this.#freeForLast = Math.ceil(messages * lastShare);
  }

  #hasRoom({ isLast }: Waiting): boolean {
    return this.#free > 0 && !(isLast && this.#freeForLast === 0);
  }

  /** Takes room for a message. @returns whether there was any; otherwise `waiting` is told once there is */
  take(waiting: Waiting): boolean {
    if (!this.#hasRoom(waiting)) {
      this.#queueOf(waiting).add(waiting);
      return false;
    }
    this.#free -= 1;
    if (waiting.isLast) this.#freeForLast -= 1;
    return true;
  }

  /** Needs no room any more. */
  leave(waiting: Waiting): void {
    this.#queueOf(waiting).delete(waiting);
  }

  /** Gives the room of a message back. @param from who had taken it */
  giveBack(from: Waiting): void {
    this.#free += 1;
    if (from.isLast) this.#freeForLast += 1;
    for (const waiting of this.#waiting) {
      if (this.#free === 0) return;
      waiting.onRoom();
    }
    for (const waiting of this.#waitingLast) {
      if (this.#free === 0 || this.#freeForLast === 0) return;
      waiting.onRoom();
    }
  }

  #queueOf({ isLast }: Waiting): Set<Waiting> {
    return isLast ? this.#waitingLast : this.#waiting;
  }
}

interface Waiting {
  /** It comes after all that was not tried before. */
  readonly isLast: boolean;
  /** There is room: takes what it needs of it, and leaves if it needs no more. */
  onRoom(): void;
}
