/** The span of a call, by OpenTelemetry's conventions for gRPC and for Connect. */
import type { DescMethod } from "@bufbuild/protobuf";
import type { RpcProtocol } from "../base/observers.ts";
import type { RequestContext } from "../base/request-context.ts";
import type { Span } from "../base/tracing.ts";

interface Origin {
  readonly method: DescMethod;
  readonly protocol: RpcProtocol;
  readonly metadata: (name: string) => string | undefined;
}

/** Statuses that are the server's failures; the others are the caller's. */
const failures: ReadonlySet<string> = new Set([
  ...["unknown", "deadline_exceeded", "unimplemented", "internal", "unavailable", "data_loss"],
]);

export function beginCallSpan(
  context: RequestContext,
  { method, protocol, metadata }: Origin,
): Span | undefined {
  const name = `${method.parent.typeName}/${method.name}`;
  const system = protocol === "connect" ? "connectrpc" : "grpc";
  return context.begin(name, { "rpc.system.name": system, "rpc.method": name }, metadata("tracestate"));
}

/** @param code `ok`, or the status in the spelling of Connect */
export function endCallSpan(span: Span, protocol: RpcProtocol, code: string): void {
  const status = protocol === "connect" ? code : code.toUpperCase().replace("CANCELED", "CANCELLED");
  // Connect has no word for success.
  if (status !== "ok") span.set({ "rpc.response.status_code": status });
  span.end(failures.has(code) ? status : undefined);
}
