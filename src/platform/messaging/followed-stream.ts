/**
 * The stream that takes a service's events. It is looked up again and again: one that was made anew has none of those
 * before it, which then wait in the outbox once more.
 */
import type { Logger } from "pino";
import type { Database } from "../database/database.ts";
import { type KeptEvents, takeBackLost } from "./kept-events.ts";
import type { OutboxTable } from "./outbox-table.ts";

/** What keeps events that were delivered, and how their stream is told from another one. */
export interface Replay extends KeptEvents {
  /** When the stream was made. From then on subscribers deliver to this one alone. */
  readonly identify: () => Promise<string>;
}

interface Options {
  readonly db: Database;
  readonly outbox: OutboxTable;
  readonly replay: Replay;
  readonly logger: Logger;
  /** Called where the stream is another one than before: events may wait again at their old positions. */
  readonly changed?: () => void;
  /**
   * Milliseconds for which a look holds, as each costs the broker a request. What is delivered meanwhile to a stream that
   * has taken its place is kept as delivered to the one before, and so comes again with the rest. It stays where it is,
   * before the older events of its subject, which come back after it. Where it comes again within the stream's duplicate
   * window, the broker drops it as a repetition; later than that, the stream has it twice, the second time in its place.
   */
  readonly holdsMs: number;
}

export class FollowedStream {
  readonly #options: Options;
  #known: { readonly created: string; readonly until: number } | undefined;
  /** The stream to which everything that is kept was delivered, when this process last looked. */
  #followed: string | undefined;

  constructor(options: Options) {
    this.#options = options;
  }

  /** When it was made, by a look that still holds. Once this has resolved, newer events may be delivered to it. */
  async created(): Promise<string> {
    if (this.#known && performance.now() < this.#known.until) return this.#known.created;
    const created = await this.#options.replay.identify();
    await this.#follow(created);
    return created;
  }

  /** Looks now whether it has lost what it had taken, all of which waits again then. */
  async hasLost(): Promise<boolean> {
    // A broker that is away is told of once there is something to deliver.
    const created = await this.#options.replay.identify().catch(() => undefined);
    return created !== undefined && (await this.#follow(created)) > 0;
  }

  /** The next look is taken anew. */
  forget(): void {
    this.#known = undefined;
  }

  /** @returns how many events wait again, as the broker has lost them */
  async #follow(created: string): Promise<number> {
    const { db, outbox, replay, logger, holdsMs, changed } = this.#options;
    const until = performance.now() + holdsMs;
    this.#known = undefined;
    let [again, gone] = [0, 0];
    try {
      await takeBackLost(db, outbox, replay, created, ({ moved, tooOld }) => {
        again += moved;
        gone += tooOld;
      });
    } finally {
      // Also where it was another process that has put them back.
      if (again > 0 || this.#followed !== created) changed?.();
      // Also if a later step fails: somebody else goes on with the rest.
      const { stream, hours } = replay;
      if (again > 0)
        logger.warn(
          { stream, events: again },
          "The broker has lost its events; those that were kept are delivered again",
        );
      if (gone > 0)
        logger.warn(
          { stream, events: gone, hours },
          "Events that the broker has lost were deleted, as they were delivered longer ago than BROKER_REPLAY_HOURS; who has not read them never will",
        );
    }
    this.#followed = created;
    this.#known = { created, until };
    return again;
  }
}
