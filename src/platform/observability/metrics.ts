/** The metrics of a process and their names. */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";
import type {
  AdmissionObserver,
  CacheObserver,
  DatabaseObserver,
  HttpObserver,
  LaneUsage,
  RpcObserver,
} from "../base/observers.ts";
import { priorities } from "../base/priority.ts";
import { brokerMetrics, janitorMetrics, outboxMetrics, scrapedGauges } from "./background-metrics.ts";
import { DurationHistogram, durationBuckets } from "./duration-histogram.ts";

interface EventCounter<Label extends string> {
  /** @param by how many; 1 unless given */
  inc(labels: Readonly<Record<Label, string>>, by?: number): void;
}

export type Metrics = ReturnType<typeof createMetrics>;

let ofNode: Registry | undefined;

/** Those of Node itself: one set for all registries, as they observe the process and never stop. */
function nodeMetrics(): Registry {
  if (!ofNode) {
    ofNode = new Registry();
    collectDefaultMetrics({ register: ofNode });
  }
  return ofNode;
}

/** The metrics of a process, with those of Node itself. @param program begins the names of all others */
export function createMetrics(program: string, version: string) {
  const registry = Registry.merge([nodeMetrics()]);
  const registers = [registry];
  new Gauge({
    name: `${program}_build_info`,
    help: "1, with the versions of the program and of Node.js.",
    labelNames: ["version", "node"],
    registers,
  }).set({ version, node: process.versions.node }, 1);
  const httpDuration = new DurationHistogram({
    name: `${program}_http_request_duration_seconds`,
    help: "Time from the start of an HTTP request's handling to its answer.",
    labelNames: ["service", "operation", "status"],
    registers,
  });
  const rpcDuration = new DurationHistogram({
    name: `${program}_rpc_duration_seconds`,
    help: "Time from the start of the handling of a gRPC, gRPC-Web or Connect call to its answer.",
    labelNames: ["service", "method", "protocol", "code"],
    registers,
  });
  const counters = new Map<string, { names: string; counter: Counter }>();
  const http: HttpObserver = {
    serves: ({ service, operation, status }) => httpDuration.zero({ service, operation, status }),
    completed: ({ service, operation, status, seconds }) =>
      httpDuration.observe({ service, operation, status }, seconds),
  };
  const rpc: RpcObserver = {
    serves: ({ service, method, protocol }) => rpcDuration.zero({ service, method, protocol, code: "ok" }),
    completed: ({ service, method, protocol, code, seconds }) =>
      rpcDuration.observe({ service, method, protocol, code }, seconds),
  };
  return {
    registry,
    http,
    rpc,
    admission: admissionMetrics(program, registry),
    database: databaseMetrics(program, registry),
    cache: cacheMetrics(program, registry),
    outbox: outboxMetrics(program, registry),
    broker: brokerMetrics(program, registry),
    janitor: janitorMetrics(program, registry),
    gauges: scrapedGauges(registry),
    /**
     * A counter of a service, with 0 for every combination of the known values; a second call returns the same.
     * @throws Error if it exists with other labels
     */
    counter<const Label extends string>(
      name: string,
      help: string,
      labels: Readonly<Record<Label, readonly string[]>>,
    ): EventCounter<Label> {
      const labelNames = Object.keys(labels);
      const names = labelNames.join(",");
      const known = counters.get(name);
      if (known && known.names !== names)
        throw new Error(`The counter ${name} has the labels ${known.names}.`);
      const counter = known?.counter ?? new Counter({ name, help, labelNames, registers });
      counters.set(name, { names, counter });
      for (const combination of combinations(labels)) counter.inc(combination, 0);
      return { inc: (values, by = 1) => counter.inc(values, by) };
    },
  };
}

/** Each value of the first label with each of the second, and so on. */
function combinations(labels: Readonly<Record<string, readonly string[]>>): Record<string, string>[] {
  return Object.entries(labels).reduce<Record<string, string>[]>(
    (all, [name, values]) => all.flatMap((one) => values.map((value) => ({ ...one, [name]: value }))),
    [{}],
  );
}

function admissionMetrics(program: string, registry: Registry): AdmissionObserver {
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
function cacheMetrics(program: string, registry: Registry): (service: string) => CacheObserver {
  const usable = new Gauge({
    name: `${program}_cache_usable`,
    help: "1 while this process can use the cache, 0 while what it is for is done without it.",
    labelNames: ["service"],
    registers: [registry],
  });
  return (service) => ({ usable: (isUsable) => usable.set({ service }, isUsable ? 1 : 0) });
}
