/**
 * A pool of connections that is replaced when one of them closes. postgres.js (3.4.9) uses a connection again
 * after it was closed. But a connection that still had data to write at that moment never writes again, and its
 * statements wait for ever. So a pool that has lost a connection gets no further statements; it finishes those
 * that it has.
 */
import type postgres from "postgres";

/** Opens a client. Its connections are made when they are needed. @param onClose called when one has closed */
export type OpenClient = (onClose: () => void) => postgres.Sql;

/** Seconds that a pool has to finish its statements. */
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

/** Closes a client once its statements have finished, without waiting for it. */
export function retire(client: postgres.Sql): void {
  client.end({ timeout: closeSeconds }).catch(() => undefined);
}
