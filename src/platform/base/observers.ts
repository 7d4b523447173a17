/** Interfaces that receive what the process does: for its metrics, or for a test. */
import type { Priority } from "./priority.ts";

/** Receives every HTTP request that got its response. `operation` is an operationId. */
export interface HttpObserver {
  serves(info: { service: string; operation: string; status: number }): void;
  completed(info: { service: string; operation: string; status: number; seconds: number }): void;
}

export interface RpcObserver {
  serves(info: { service: string; method: string; protocol: RpcProtocol }): void;
  completed(info: {
    readonly service: string;
    readonly method: string;
    readonly protocol: RpcProtocol;
    /** `ok`, or the status in the spelling of Connect, for example `invalid_argument`. */
    readonly code: string;
    readonly seconds: number;
  }): void;
}

export type RpcProtocol = "grpc" | "connect" | "grpc-web";

/** Receives how many requests are in flight, how long they waited, and how many were refused as too many arrived. */
export interface AdmissionObserver {
  /** Receives a function that counts the admitted requests without a response, by priority, at any time. */
  inFlight(count: () => Readonly<Record<string, number>>): void;
  /** An admitted request is started so many seconds after the process has read it. */
  waited(priority: Priority, seconds: number): void;
  /** @param count 0 announces that such requests can be refused */
  shed(service: string, priority: string, count: number): void;
}

export interface LaneUsage {
  /** Connections that are open, and those of them that have work. */
  readonly open: number;
  readonly inUse: number;
  /** How many pieces of work wait for a connection. */
  readonly waiting: number;
}

export interface DatabaseObserver {
  /** A lane with this name exists. Its usage may be asked for at any time. */
  lane(name: string, usage: () => LaneUsage): void;
  /** Work has waited so many seconds for a connection, and got it or gave up. */
  waited(lane: string, seconds: number): void;
  connectFailed(): void;
}

export interface CacheObserver {
  usable(isUsable: boolean): void;
}

/** Receives the progress of a janitor, by kinds of rows. */
export interface JanitorObserver<Kind extends string> {
  cleaned(kind: Kind, rows: number): void;
  /** No row of the kind is left to be dealt with now. */
  caughtUp(kind: Kind): void;
  roundEnded(): void;
}

export interface OutboxBacklog {
  readonly events: number;
  /** Seconds since the oldest of them was written; 0 if there is none. */
  readonly oldestSeconds: number;
  /** How many of the oldest thousand have a type that this version cannot deliver. */
  readonly unknown: number;
}

export interface UnreadEvents {
  /** How many events the service has not acted on, whether or not it has read them. */
  readonly events: number;
  /** Seconds since the oldest of them came to the broker, by the clock of this process; 0 if there is none. */
  readonly oldestSeconds: number;
}
