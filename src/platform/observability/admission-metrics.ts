import { Counter, Gauge, type Registry } from "prom-client";
import type { AdmissionObserver } from "../base/observers.ts";

/** The metrics of what is refused because too much arrives. */
export function admissionMetrics(program: string, registry: Registry): AdmissionObserver {
  const registers = [registry];
  const shed = new Counter({
    name: `${program}_requests_shed_total`,
    help: "Requests and calls that were refused because more arrived than could be answered in time.",
    labelNames: ["service", "priority"],
    registers,
  });
  return {
    inFlight(count) {
      new Gauge({
        name: `${program}_requests_in_flight`,
        help: "Requests and calls that were admitted and have not been answered.",
        labelNames: ["priority"],
        registers,
        collect() {
          for (const [priority, value] of Object.entries(count())) this.set({ priority }, value);
        },
      });
    },
    shed: (service, priority, count) => shed.inc({ service, priority }, count),
  };
}
