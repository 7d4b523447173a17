/** The metrics of a process and their names. */
import { Counter, collectDefaultMetrics, Gauge, Registry } from "prom-client";
import type { HttpObserver, RpcObserver } from "../base/observers.ts";
import { admissionMetrics } from "./admission-metrics.ts";
import { brokerMetrics, janitorMetrics, outboxMetrics } from "./background-metrics.ts";
import { cacheMetrics, databaseMetrics } from "./database-metrics.ts";
import { DurationHistogram } from "./duration-histogram.ts";

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
