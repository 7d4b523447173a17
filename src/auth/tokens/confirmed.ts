/** What callers are told of the tokens and identities, so that neither a failover nor a standby takes it back. */
import { confirmFound } from "../../platform/database/confirm.ts";
import type { Confirm } from "../../platform/database/database.ts";
import type { Standbys } from "../../platform/database/standbys.ts";

export interface Confirmed {
  /**
   * Called when an ending has been committed, or is found to have been, and before anybody is told. Resolves once no
   * standby is relied on that does not have it; at once where none are read from.
   */
  ended(): Promise<void>;
  /** For what only looks, or is refused: acts, and once more after a confirmed commit where it has found another's work. */
  found<T>(act: () => Promise<T>, isFound: (outcome: PromiseSettledResult<T>) => boolean): Promise<T>;
}

/** @param standbys those that are read from */
export function createConfirmed(confirm: Confirm, standbys?: Standbys): Confirmed {
  return {
    ended: async () => standbys?.applied(),
    found: (act, isFound) => confirmFound(confirm, act, isFound),
  };
}
