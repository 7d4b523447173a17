/**
 * The stream that takes a service's events. It is looked up again and again: if it was created anew, it has none of the
 * events that were delivered before, and these return to the outbox.
 */
import type { Logger } from "pino";
import type { Database } from "../database/database.ts";
import { type KeptEvents, takeBackLost } from "./kept-events.ts";
import type { OutboxTable } from "./outbox-table.ts";

/** The tables that keep delivered events, and how their stream is distinguished from another one. */
export interface Replay extends KeptEvents {
  /** Returns when the stream was created. From then on subscribers deliver to this stream alone. */
  readonly identify: () => Promise<string>;
}

interface Options {
  readonly db: Database;
  readonly outbox: OutboxTable;
  readonly replay: Replay;
  readonly logger: Logger;
  /** Called if the stream is another one than before: events may wait again at their old positions. */
  readonly changed?: () => void;
  /**
   * Milliseconds for which a look-up is used, as each one costs the broker a request.
   *
   * If the stream is created anew within that time, events may be delivered to the new stream while they are recorded
   * as delivered to the old one. After the next look-up they are delivered again, with all the older events. The new
   * stream then has such an event before the older events of its subject. The second delivery is dropped by the broker
   * within the stream's duplicate window; after that, the stream has the event twice, the second time in the right
   * order.
   */
  readonly holdsMs: number;
}

export class FollowedStream {
  readonly #options: Options;
  /** The last look-up; `until` is the end of its use, by performance.now(). */
  #known: { readonly created: string; readonly until: number } | undefined;
  /** The stream to which everything that is kept was delivered, when this process last looked. */
  #followed: string | undefined;

  constructor(options: Options) {
    this.#options = options;
  }

  /** Returns when the stream was created. Once this has resolved, newer events may be delivered to the stream. */
  async created(): Promise<string> {
    if (this.#known && performance.now() < this.#known.until) return this.#known.created;
    const created = await this.#options.replay.identify();
    await this.#follow(created);
    return created;
  }

  /** Looks up the stream now. @returns whether it had lost events, which are in the outbox again */
  async hasLost(): Promise<boolean> {
    // A broker that is away is logged once there is an event to deliver.
    const created = await this.#options.replay.identify().catch(() => undefined);
    return created !== undefined && (await this.#follow(created)) > 0;
  }

  /** Has the next call look up the stream. */
  forget(): void {
    this.#known = undefined;
  }

  /** @returns the number of events that the broker has lost and that are in the outbox again */
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
      // Another process may have put the events back, too.
      if (again > 0 || this.#followed !== created) changed?.();
      // This is logged also if a later step fails, as another process may go on with the rest.
      const { stream, hours } = replay;
      if (again > 0)
        logger.warn(
          { stream, events: again },
          "The broker has lost its events; those that were kept are delivered again",
        );
      if (gone > 0)
        logger.warn(
          { stream, events: gone, hours },
          "Events that the broker has lost were deleted, as they were delivered longer ago than BROKER_REPLAY_HOURS; consumers that have not read them never will",
        );
    }
    this.#followed = created;
    this.#known = { created, until };
    return again;
  }
}
