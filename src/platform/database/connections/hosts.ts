import type { Address } from "../settings.ts";
import type { Connection, Result } from "./connection.ts";
import type { ReplicationState } from "./replication-state.ts";

/** Where the connections of a pool go. */
export interface Hosts {
  /**
   * The address that the next connection goes to.
   * @throws an error that means that the database is unavailable
   */
  locate(): Promise<Address>;
  /**
   * Checks the server at the other end of a connection: behind an address there may be another server than before.
   * @returns the server's replication state, if that matters
   * @throws an error that means that the database is unavailable, if the server is not the one to use
   */
  check(query: (text: string) => Promise<Result>): Promise<ReplicationState | undefined>;
  /** Whether an error of a statement raises doubts about the server, so that its connection is to be ended. */
  isDoubtful(error: unknown): boolean;
  /** Called for each connection that has been opened. */
  opened(connection: Connection): void;
  /**
   * Called for each connection that has ended, also for one that could not be opened.
   * @param error why it ended; undefined if this process has terminated it
   */
  closed(connection: Connection, error: Error | undefined): void;
}

/** All connections go to one address, whichever server that is. */
export function oneHost(address: Address): Hosts {
  return {
    locate: async () => address,
    check: async () => undefined,
    isDoubtful: () => false,
    opened() {},
    closed() {},
  };
}
