/** Interfaces that receive each completed request and call: for the metrics of the process, or for a test. */

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
