/** The metrics of a process and their names. */
import { Counter, collectDefaultMetrics, Gauge, Registry } from "prom-client";
import type {
  AdmissionObserver,
  CacheObserver,
  DatabaseObserver,
  HttpObserver,
  JanitorObserver,
  OutboxBacklog,
  RpcObserver,
  UnreadEvents,
} from "../base/observers.ts";
import { admissionMetrics } from "./admission-metrics.ts";
import { brokerMetrics, janitorMetrics, outboxMetrics } from "./background-metrics.ts";
import { cacheMetrics, databaseMetrics } from "./database-metrics.ts";
import { DurationHistogram } from "./duration-histogram.ts";

interface EventCounter<Label extends string> {
  /** @param by how many; 1 unless given */
  inc(labels: Readonly<Record<Label, string>>, by?: number): void;
}

export interface Metrics {
  readonly registry: Registry;
  readonly http: HttpObserver;
  readonly rpc: RpcObserver;
  readonly admission: AdmissionObserver;
  database(service: string): DatabaseObserver;
  cache(service: string): CacheObserver;
  /** @param backlog asked at each scrape; left out if it rejects or takes a second @returns counts deliveries */
  outbox(service: string, backlog: () => Promise<OutboxBacklog>): (delivered: number) => void;
  /** @param unread asked at a scrape, at most every five seconds; left out if it rejects or takes a second */
  broker(service: string, unread: () => Promise<UnreadEvents>): void;
  /** The janitor of a service. @param kinds of rows that it deals with */
  janitor<const Kind extends string>(service: string, kinds: readonly Kind[]): JanitorObserver<Kind>;
  /**
   * A counter of a service, with 0 for every combination of the known values; a second call returns the same.
   * @throws Error if it exists with other labels
   */
  counter<const Label extends string>(
    name: string,
    help: string,
    labels: Readonly<Record<Label, readonly string[]>>,
  ): EventCounter<Label>;
}

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
export function createMetrics(program: string, version: string): Metrics {
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
  return {
    registry,
    http: {
      serves: ({ service, operation, status }) => httpDuration.zero({ service, operation, status }),
      completed: ({ service, operation, status, seconds }) =>
        httpDuration.observe({ service, operation, status }, seconds),
    },
    rpc: {
      serves: ({ service, method, protocol }) => rpcDuration.zero({ service, method, protocol, code: "ok" }),
      completed: ({ service, method, protocol, code, seconds }) =>
        rpcDuration.observe({ service, method, protocol, code }, seconds),
    },
    admission: admissionMetrics(program, registry),
    database: databaseMetrics(program, registry),
    cache: cacheMetrics(program, registry),
    outbox: outboxMetrics(program, registry),
    broker: brokerMetrics(program, registry),
    janitor: janitorMetrics(program, registry),
    counter(name, help, labels) {
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
