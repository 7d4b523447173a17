/** Gauges of what is paused, and why, as of the moment of the scrape. */
import { Gauge } from "prom-client";
import { withTimeout } from "../../platform/base/deadlines.ts";
import type { Metrics } from "../../platform/observability/metrics.ts";
import { causes } from "./breaker.ts";
import { faults } from "./faults.ts";

/** A pause, of a provider or of one of its services. */
export interface Paused {
  readonly provider: string;
  readonly cause: string;
}

/** Milliseconds that a scrape waits for the database. */
const readingMs = 1_000;

/**
 * @param shared the pauses for all processes; their gauge has no series while they cannot be read
 * @param own the pauses of this process alone
 */
export function showPauses(
  { registry }: Pick<Metrics, "registry">,
  providers: readonly string[],
  shared: () => Promise<readonly Paused[]>,
  own: () => readonly Paused[],
): void {
  const common = { labelNames: ["provider", "cause"], registers: [registry] };
  const show = (gauge: Gauge, all: readonly string[], paused: readonly Paused[]) => {
    for (const provider of providers)
      for (const cause of all) {
        const isPaused = paused.some((one) => one.provider === provider && one.cause === cause);
        gauge.set({ provider, cause }, isPaused ? 1 : 0);
      }
  };
  new Gauge({
    ...common,
    name: "gatepost_push_provider_paused",
    help: "1 while no process sends to the provider, or to one of its push services, as it fails or refuses us.",
    async collect() {
      const unknown = () => undefined;
      const paused = await withTimeout(shared(), readingMs, unknown).catch(unknown);
      this.reset();
      if (paused) show(this, causes, paused);
    },
  });
  new Gauge({
    ...common,
    name: "gatepost_push_process_paused",
    help: "1 while this process alone sends nothing to the provider, by a fault of its own.",
    collect() {
      show(this, faults, own());
    },
  });
}
