import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import type { CacheObserver, DatabaseObserver, LaneUsage } from "../base/observers.ts";
import { durationBuckets } from "./duration-buckets.ts";

/** The metrics of connections to databases, whose usage is read at each scrape. */
export function databaseMetrics(program: string, registry: Registry): (service: string) => DatabaseObserver {
  const lanes: { labels: { service: string; lane: string }; usage: () => LaneUsage }[] = [];
  const labelNames = ["service", "lane"] as const;
  const registers = [registry];
  function gauge(name: string, help: string, value: keyof LaneUsage): void {
    new Gauge({
      name: `${program}_database_${name}`,
      help,
      labelNames,
      registers,
      collect() {
        for (const { labels, usage } of lanes) this.set(labels, usage()[value]);
      },
    });
  }
  gauge("connections", "Open connections to the database.", "open");
  gauge("connections_in_use", "Connections to the database that have work.", "inUse");
  gauge("waiting", "Statements and transactions that wait for a connection.", "waiting");
  const waits = new Histogram({
    name: `${program}_database_wait_seconds`,
    help: "Time for which a statement or transaction waited for a connection, whether it got one or gave up.",
    labelNames,
    buckets: durationBuckets,
    registers,
  });
  const failures = new Counter({
    name: `${program}_database_connect_failures_total`,
    help: "Connections to the database that could not be made.",
    labelNames: ["service"],
    registers,
  });
  return (service) => {
    failures.inc({ service }, 0);
    return {
      lane(lane, usage) {
        lanes.push({ labels: { service, lane }, usage });
        waits.zero({ service, lane });
      },
      waited: (lane, seconds) => waits.observe({ service, lane }, seconds),
      connectFailed: () => failures.inc({ service }),
    };
  };
}

/** Whether the caches can be used. A service without one has no series. */
export function cacheMetrics(program: string, registry: Registry): (service: string) => CacheObserver {
  const usable = new Gauge({
    name: `${program}_cache_usable`,
    help: "1 while this process can use the cache, 0 while what it is for is done without it.",
    labelNames: ["service"],
    registers: [registry],
  });
  return (service) => ({ usable: (isUsable) => usable.set({ service }, isUsable ? 1 : 0) });
}
