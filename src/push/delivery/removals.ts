/** Removes the devices that their providers have reported dead, in steps, when their delay is over. */
import { every, type Loop } from "../../platform/base/loop.ts";
import type { Database } from "../../platform/database/database.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import type { ProviderName } from "../provider-settings.ts";
import { forgetOld, type RemoveDeadDevices, removeDue, type StopLimits } from "./dead-reports.ts";

interface Dependencies {
  readonly db: Database;
  readonly providers: readonly ProviderName[];
  readonly removeDeadDevices: RemoveDeadDevices;
  readonly limits: StopLimits & { readonly removalDelaySeconds: number };
  readonly logger: Logger;
}

/** Milliseconds between rounds at most, and at least: a short delay is to be noticed. */
const longestRoundMs = 10_000;
const shortestRoundMs = 250;

/** Runs rounds until stopped, on every process; no device is taken by two. A round that fails is logged. */
export function startRemovals({ db, providers, removeDeadDevices, limits, logger }: Dependencies): Loop {
  const delayMs = limits.removalDelaySeconds * 1000;
  return every(
    Math.max(shortestRoundMs, Math.min(longestRoundMs, delayMs / 4)),
    async (stopping) => {
      for (const provider of providers) {
        while (!stopping.aborted && (await removeDue(db, provider, limits, removeDeadDevices)));
        await forgetOld(db, provider);
      }
    },
    (err) => logger.warn({ err }, "Dead devices could not be removed yet"),
  );
}
