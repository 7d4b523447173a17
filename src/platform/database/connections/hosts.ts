import type { Address } from "../settings.ts";
import type { Connection, Result } from "./connection.ts";
import type { ReplicationState } from "./replication-state.ts";

export interface Hosts {
  /** The address of the next connection. @throws an error that means that the database is unavailable */
  locate(): Promise<Address>;
  /**
   * The replication state of the server at a connection, if it matters; rejects if the server is not the one to use.
   */
  check(query: (text: string) => Promise<Result>): Promise<ReplicationState | undefined>;
  /** Whether an error of a statement raises doubts about the server, so that its connection is to be ended. */
  isDoubtful(error: unknown): boolean;
  opened(connection: Connection): void;
  /** Called for each connection that has ended, or was not opened. @param error undefined: this process ended it */
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
