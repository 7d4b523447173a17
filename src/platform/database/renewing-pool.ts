/**
 * A pool of connections that is replaced when one of them goes. postgres.js (3.4.9) uses a connection again
 * after it was closed, but one that had something left to write at that moment never writes again: what it is
 * given waits for ever. So nothing is given to a pool that has lost a connection; what it still has in hand,
 * it finishes.
 */
import type postgres from "postgres";

/** Opens a client. Its connections are made when they are needed. @param onClose called when one has gone */
export type OpenClient = (onClose: () => void) => postgres.Sql;

/** Seconds that a pool has to finish what it has in hand. */
const closeSeconds = 10;

export class RenewingPool {
  readonly #open: OpenClient;
  #current: postgres.Sql;

  constructor(open: OpenClient) {
    this.#open = open;
    this.#current = this.#openCurrent();
  }

  /** The client to use for the next statement. */
  get current(): postgres.Sql {
    return this.#current;
  }

  close(): Promise<void> {
    return this.#current.end({ timeout: closeSeconds });
  }

  #openCurrent(): postgres.Sql {
    const client = this.#open(() => {
      if (client !== this.#current) return;
      this.#current = this.#openCurrent();
      retire(client);
    });
    return client;
  }
}

/** Lets a client finish and forgets it. */
export function retire(client: postgres.Sql): void {
  client.end({ timeout: closeSeconds }).catch(() => undefined);
}
