/** Interfaces that receive what the process does: for its metrics, or for a test. */

/** Receives every HTTP request that was answered. `operation` is an operationId of the contract, so the values are few. */
export interface HttpObserver {
  completed(info: { service: string; operation: string; status: number; seconds: number }): void;
}

/** Receives every RPC that ended. */
export interface RpcObserver {
  completed(info: {
    /** Full name, as in grpc.health.v1.Health. */
    readonly service: string;
    /** Name as in the proto, for example Check. */
    readonly method: string;
    readonly protocol: RpcProtocol;
    /** `ok`, or the status in the spelling of Connect, for example `invalid_argument`. */
    readonly code: string;
    readonly seconds: number;
  }): void;
}

export type RpcProtocol = "grpc" | "connect" | "grpc-web";

/** How the connections of a lane are used at a moment. */
export interface LaneUsage {
  /** Connections that are open, and those of them that have work. */
  readonly open: number;
  readonly inUse: number;
  /** Work that waits for a connection. */
  readonly waiting: number;
}

/** Receives how the connections to a database are used. */
export interface DatabaseObserver {
  /** There is such a lane; its usage may be asked for at any time. */
  lane(name: string, usage: () => LaneUsage): void;
  /** Work has received a connection, after so many seconds. */
  waited(lane: string, seconds: number): void;
  /** A connection could not be made. */
  connectFailed(): void;
}
