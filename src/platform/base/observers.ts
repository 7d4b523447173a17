/** Who takes note of what was served: the metrics of the process, or a test. */

/** Is told of every HTTP request that was answered. `operation` is the contract's name, so that there are few. */
export interface HttpObserver {
  completed(info: { service: string; operation: string; status: number; seconds: number }): void;
}

/** Is told of every RPC that ended. */
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
