import type { AwaitStandbys } from "../tokens/end-authorizations.ts";
import type { Identities } from "./identities.ts";

/**
 * What ends authorizations is answered once no standby is relied on that does not have it. So is a deletion that finds
 * no identity: an earlier try may have deleted it, and have been answered 503.
 */
export function appliedAtStandbys(identities: Identities, awaitStandbys: AwaitStandbys): Identities {
  async function applied(change: Promise<void>): Promise<void> {
    try {
      await change;
    } finally {
      await awaitStandbys();
    }
  }
  return {
    ...identities,
    delete: (id) => applied(identities.delete(id)),
    setPassword: (id, password) => applied(identities.setPassword(id, password)),
  };
}
