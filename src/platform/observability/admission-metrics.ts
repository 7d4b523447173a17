import { Counter, Gauge, type Registry } from "prom-client";
import type { AdmissionObserver } from "../base/observers.ts";
import { priorities } from "../base/priority.ts";
import { DurationHistogram } from "./duration-histogram.ts";

export function admissionMetrics(program: string, registry: Registry): AdmissionObserver {
  const registers = [registry];
  const shed = new Counter({
    name: `${program}_requests_shed_total`,
    help: "Requests and calls that were refused because more arrived than could be answered in time.",
    labelNames: ["service", "priority"],
    registers,
  });
  const waits = new DurationHistogram({
    name: `${program}_request_wait_seconds`,
    help: "Time from when an admitted request or call was read to its start.",
    labelNames: ["priority"],
    registers,
  });
  for (const priority of priorities) waits.zero({ priority });
  return {
    waited: (priority, seconds) => waits.observe({ priority }, seconds),
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
