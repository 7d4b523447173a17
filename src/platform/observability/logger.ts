/**
 * What a process tells of itself: its log and its metrics. Owns how lines are written and what is measured;
 * what lines must not carry is redaction.ts.
 */
import { createRequire } from "node:module";
import {
  type DestinationStream,
  destination as fileDestination,
  type Logger,
  type LoggerOptions,
  pino,
} from "pino";
import { Counter, collectDefaultMetrics, Histogram, Registry } from "prom-client";
import type { RpcObserver } from "../rpc/service.ts";
import type { Environment } from "../settings/kinds.ts";
import { loggable, redactLine } from "./redaction.ts";

export type { Logger } from "pino";

export interface LoggerSettings {
  /** The least severe level written: trace, debug, info, warn, error, fatal, or silent. */
  readonly level: string;
  /** JSON lines in production, lines for people in development. */
  readonly environment: Environment;
  /** Where lines go; standard output unless given. */
  readonly destination?: DestinationStream;
}

/**
 * The log of a process. Lines are written before the call returns, by no other thread: what was logged
 * before a crash is there after it. Whatever is logged, by this logger or by a child, goes through
 * redaction.ts: bindings, objects, errors and text.
 */
export function createLogger({ level, environment, destination }: LoggerSettings): Logger {
  const options: LoggerOptions = {
    level,
    formatters: { level: (label) => ({ level: label }) },
    timestamp: pino.stdTimeFunctions.isoTime,
    // Errors come serialised; pino's own serialiser would copy every field of theirs.
    serializers: { err: (value: unknown) => value },
    hooks: {
      logMethod(args, method) {
        Reflect.apply(method, this, loggableArguments(args));
      },
      streamWrite: redactLine,
    },
  };
  const output = destination ?? fileDestination({ dest: 1, sync: true });
  const logger = pino(options, environment === "production" ? output : forPeople(output, !destination));
  return redactBindings(logger);
}

/** The arguments of a log call: `(object?, message?, ...values)`. */
function loggableArguments(args: readonly unknown[]): unknown[] {
  const [first, ...rest] = args.map(loggable);
  if (typeof args[0] !== "object" || args[0] === null) return [first, ...rest];
  if (args[0] instanceof Error) return withMessage({ err: first }, first, rest);
  if (typeof first !== "object" || first === null) return [{ value: first }, ...rest];
  return "err" in first && !("msg" in first) ? withMessage(first, first.err, rest) : [first, ...rest];
}

/** A line about an error has the error's message unless it has one of its own. */
function withMessage(object: object, error: unknown, rest: readonly unknown[]): unknown[] {
  if (rest.length > 0) return [object, ...rest];
  const hasMessage = typeof error === "object" && error !== null && "message" in error;
  // The values of a format string are not looked for in it.
  return hasMessage ? [object, "%s", error.message] : [object];
}

/** A child's bindings pass no hook of pino's, so the two methods that take them are wrapped. Children inherit it. */
function redactBindings(logger: Logger): Logger {
  for (const name of ["child", "setBindings"] as const) {
    const method = logger[name];
    Object.defineProperty(logger, name, {
      value(this: Logger, bindings: unknown, ...rest: unknown[]): unknown {
        return Reflect.apply(method, this, [loggable(bindings), ...rest]);
      },
    });
  }
  return logger;
}

function forPeople(output: DestinationStream, isStandardOutput: boolean): DestinationStream {
  // Loaded only where it is used: production spares its memory.
  const { prettyFactory }: typeof import("pino-pretty") = createRequire(import.meta.url)("pino-pretty");
  const pretty = prettyFactory({
    colorize: isStandardOutput && process.stdout.isTTY && process.stdout.hasColors(),
    ignore: "pid,hostname",
    singleLine: true,
    translateTime: "SYS:HH:MM:ss.l",
  });
  return { write: (line) => output.write(pretty(line)) };
}

/** Told of every HTTP request that was answered. `operation` is the contract's name, so that there are few. */
export interface HttpObserver {
  completed(info: { service: string; operation: string; status: number; seconds: number }): void;
}

/** A count of events, by labels. */
export interface EventCounter<Label extends string> {
  /** @param by how many; 1 unless given */
  inc(labels: Readonly<Record<Label, string>>, by?: number): void;
}

export interface Metrics {
  readonly registry: Registry;
  readonly http: HttpObserver;
  readonly rpc: RpcObserver;
  /**
   * A counter of a service's own. Asked for again by name, the same one is returned, so that two services
   * of one process can share it.
   * @throws Error if it exists with other labels
   */
  counter<const Label extends string>(
    name: string,
    help: string,
    labelNames: readonly Label[],
  ): EventCounter<Label>;
}

/** Seconds: from a cached answer to one that somebody gave up on. */
const durationBuckets = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** The metrics of a process, in a registry of their own, with those of Node itself. */
export function createMetrics(): Metrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const httpDuration = new Histogram({
    name: "gatepost_http_request_duration_seconds",
    help: "Time from the arrival of an HTTP request to its answer.",
    labelNames: ["service", "operation", "status"],
    buckets: durationBuckets,
    registers: [registry],
  });
  const rpcDuration = new Histogram({
    name: "gatepost_rpc_duration_seconds",
    help: "Time from the arrival of a gRPC, gRPC-Web or Connect call to its answer.",
    labelNames: ["service", "method", "protocol", "code"],
    buckets: durationBuckets,
    registers: [registry],
  });
  const counters = new Map<string, { labels: string; counter: Counter }>();
  return {
    registry,
    // About half a microsecond each. Children with fixed labels cost the same: prom-client hashes those too.
    http: {
      completed: ({ service, operation, status, seconds }) =>
        httpDuration.observe({ service, operation, status }, seconds),
    },
    rpc: {
      completed: ({ service, method, protocol, code, seconds }) =>
        rpcDuration.observe({ service, method, protocol, code }, seconds),
    },
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
