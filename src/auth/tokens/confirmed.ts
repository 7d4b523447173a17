/**
 * What an acknowledgement rests on has reached the standbys, so that no failover takes it back. A commit of the
 * request's own has waited for the synchronous ones. One that it finds done may be visible without: the wait of the
 * request before it was cancelled, and that was answered 503.
 */
import type { OpenDatabase } from "../../platform/database/database.ts";
import type { Standbys } from "../../platform/database/standbys.ts";

/** Whose commit an ending is: the request's own, or one from before, which it has found. */
export type EndedBy = "own" | "earlier";

/** Awaited before anybody is told. @throws an error that means that the database is unavailable */
export interface Confirmed {
  /** Resolves once an ending is confirmed, and no standby is relied on that does not have it. */
  ended(by: EndedBy): Promise<void>;
  /** Resolves once what another request has stored is confirmed. */
  stored(): Promise<void>;
}

/** @param standbys those that are read from */
export function createConfirmed({ confirm }: Pick<OpenDatabase, "confirm">, standbys?: Standbys): Confirmed {
  return {
    async ended(by) {
      // It commits as well, and waits for more.
      if (standbys) await standbys.applied();
      else if (by === "earlier") await confirm();
    },
    stored: confirm,
  };
}
