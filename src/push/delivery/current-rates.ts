/** How many messages a second each provider takes at the moment, over all processes. */
import { eq } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import type { ProviderName } from "../provider-settings.ts";
import { wholeProvider } from "../queue/provider-rows.ts";
import { providerStates } from "../schema.ts";

/**
 * @param maxPerSecond the limit; 0: none
 * @returns reads the rates: the limit times the share of it that a provider gets; undefined: there is no limit
 */
export function createCurrentRates(db: Database, maxPerSecond: number) {
  return async (): Promise<(provider: ProviderName) => number | undefined> => {
    if (maxPerSecond === 0) return () => undefined;
    const { provider, share, service } = providerStates;
    const states = await db
      .select({ provider, share })
      .from(providerStates)
      .where(eq(service, wholeProvider));
    const shares = new Map(states.map((state) => [state.provider, state.share]));
    return (name) => maxPerSecond * (shares.get(name) ?? 1);
  };
}
