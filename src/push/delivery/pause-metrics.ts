/** Gauges of what is paused, and why, as of the moment of the scrape. */
import type { Metrics } from "../../platform/observability/metrics.ts";
import { causes } from "./breaker.ts";
import { faults } from "./faults.ts";

/** A pause, of a provider or of one of its services. */
export interface Paused {
  readonly provider: string;
  readonly cause: string;
}

/**
 * @param shared the pauses for all processes; their gauge is absent while they cannot be read
 * @param own the pauses of this process alone
 */
export function showPauses(
  { gauges }: Pick<Metrics, "gauges">,
  providers: readonly string[],
  shared: () => Promise<readonly Paused[]>,
  own: () => readonly Paused[],
): void {
  const pauses = (name: string, all: readonly string[], help: string) => ({
    ...{ name, help, labelNames: ["provider", "cause"] },
    *samples(paused: readonly Paused[]) {
      for (const provider of providers)
        for (const cause of all) {
          const isPaused = paused.some((one) => one.provider === provider && one.cause === cause);
          yield [{ provider, cause }, isPaused ? 1 : 0] as const;
        }
    },
  });
  const forAll =
    "1 while no process sends to the provider, or to one of its push services, as it fails or refuses us.";
  gauges([pauses("gatepost_push_provider_paused", causes, forAll)], shared);
  const alone = "1 while this process alone sends nothing to the provider, by a fault of its own.";
  gauges([pauses("gatepost_push_process_paused", faults, alone)], () => Promise.resolve(own()));
}
