import type { Standing } from "./choose-primary.ts";
import type { Connection, Result } from "./connection.ts";
import type { Address } from "./settings.ts";

/** Where the connections of a pool go. */
export interface Hosts {
  /** Where the next one goes. @throws an error that means that the database is unavailable */
  locate(): Promise<Address>;
  /**
   * Belongs to the check of each connection: behind an address there may be another server than before.
   * @returns what the server says of itself, if that matters
   * @throws an error that means that the database is unavailable, if the server is not the one to use
   */
  check(query: (text: string) => Promise<Result>): Promise<Standing | undefined>;
  /** Whether an error of a statement raises doubts about the server, so that its connection is to be ended. */
  isDoubtful(error: unknown): boolean;
  /** Is told of each connection that has been opened, */
  opened(connection: Connection): void;
  /** and of each that has ended, opened or not; with an error unless it was said goodbye to. */
  closed(connection: Connection, error: Error | undefined): void;
}

/** All of them to one host, whichever server that is. */
export function oneHost(address: Address): Hosts {
  return {
    locate: async () => address,
    check: async () => undefined,
    isDoubtful: () => false,
    opened() {},
    closed() {},
  };
}
