/** The metrics of a process and their names. */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";
import type { DatabaseObserver, HttpObserver, LaneUsage, RpcObserver } from "../base/observers.ts";

/** A count of events, by labels. */
export interface EventCounter<Label extends string> {
  /** @param by how many; 1 unless given */
  inc(labels: Readonly<Record<Label, string>>, by?: number): void;
}

export interface Metrics {
  readonly registry: Registry;
  readonly http: HttpObserver;
  readonly rpc: RpcObserver;
  /** The connections of a service to its database. */
  database(service: string): DatabaseObserver;
  /**
   * A counter of a service. A second call with the same name returns the same counter, so that two services of
   * one process can share it.
   * @throws Error if it exists with other labels
   */
  counter<const Label extends string>(
    name: string,
    help: string,
    labelNames: readonly Label[],
  ): EventCounter<Label>;
}

/** Seconds: from a cached response to one that a caller no longer waits for. */
const durationBuckets = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/**
 * The metrics of a process, in a registry of their own, with those of Node itself.
 * @param program begins the names of all but Node's, as in `<program>_rpc_duration_seconds`
 */
export function createMetrics(program: string): Metrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const httpDuration = new Histogram({
    name: `${program}_http_request_duration_seconds`,
    help: "Time from the arrival of an HTTP request to its answer.",
    labelNames: ["service", "operation", "status"],
    buckets: durationBuckets,
    registers: [registry],
  });
  const rpcDuration = new Histogram({
    name: `${program}_rpc_duration_seconds`,
    help: "Time from the arrival of a gRPC, gRPC-Web or Connect call to its answer.",
    labelNames: ["service", "method", "protocol", "code"],
    buckets: durationBuckets,
    registers: [registry],
  });
  const database = databaseMetrics(program, registry);
  const counters = new Map<string, { labels: string; counter: Counter }>();
  return {
    registry,
    // Each takes about half a microsecond. Children with fixed labels would not be faster: prom-client hashes those too.
    http: {
      completed: ({ service, operation, status, seconds }) =>
        httpDuration.observe({ service, operation, status }, seconds),
    },
    rpc: {
      completed: ({ service, method, protocol, code, seconds }) =>
        rpcDuration.observe({ service, method, protocol, code }, seconds),
    },
    database,
    counter(name, help, labelNames) {
      const labels = labelNames.join(",");
      const known = counters.get(name);
      if (known && known.labels !== labels)
        throw new Error(`The counter ${name} has the labels ${known.labels}.`);
      const counter = known?.counter ?? new Counter({ name, help, labelNames, registers: [registry] });
      counters.set(name, { labels, counter });
      return { inc: (values, by = 1) => counter.inc(values, by) };
    },
  };
}

/** The metrics of connections to databases, whose usage is read at each scrape. */
function databaseMetrics(program: string, registry: Registry): (service: string) => DatabaseObserver {
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
    help: "Time for which a statement or transaction waited for a connection.",
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
      lane: (lane, usage) => lanes.push({ labels: { service, lane }, usage }),
      waited: (lane, seconds) => waits.observe({ service, lane }, seconds),
      connectFailed: () => failures.inc({ service }),
    };
  };
}
