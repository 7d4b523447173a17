import { unavailable } from "../../platform/base/errors.ts";
import { Turns } from "../../platform/base/turns.ts";
import type { Identities } from "./identities.ts";

/** Milliseconds that a change waits for its turn: less than its caller waits for the response. */
const waitMs = 4_000;

/**
 * Changes of one identity take turns in a process. Where its row is locked by somebody else, one change waits for the
 * lock on a connection, and the others wait here.
 */
export function changedInTurn(identities: Identities): Identities {
  const turns = new Turns(waitMs, () =>
    unavailable("The database", new Error("other changes of the identity take too long")),
  );
  return {
    ...identities,
    update: (id, fields) => turns.take(id, () => identities.update(id, fields)),
    delete: (id) => turns.take(id, () => identities.delete(id)),
    setPassword: (id, password) => turns.take(id, () => identities.setPassword(id, password)),
  };
}
