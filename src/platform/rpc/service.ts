/** A proto service and its implementation, bound once for every protocol; call.ts runs around each method. */
import type {
  DescMethod,
  DescMethodBiDiStreaming,
  DescMethodServerStreaming,
  DescMethodUnary,
  DescService,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";
import { cors } from "@connectrpc/connect";
import type { Priority } from "../base/priority.ts";
import type { RequestContext } from "../base/request-context.ts";
import type { ApiHeaders } from "../door/cors-policy.ts";

/** The headers that pages send and read over Connect and gRPC-Web. */
export const rpcHeaders: ApiHeaders = {
  requestHeaders: cors.allowedHeaders,
  responseHeaders: cors.exposedHeaders,
};

export interface RpcCall {
  readonly context: RequestContext;
  /** First value of the caller's metadata of this name (lower case), where it is text. */
  readonly metadata: (name: string) => string | undefined;
  /** Aborted when the call is cancelled or past its deadline, or when the server shuts down. */
  readonly signal: AbortSignal;
}

type Method<Request, Response> = (request: Request, call: RpcCall) => Response;

/** Client streaming is not supported: such a method has the type `never`, so no implementation compiles. */
type MethodImplementation<M extends DescMethod> =
  M extends DescMethodUnary<infer I, infer O>
    ? Method<MessageShape<I>, Promise<MessageInitShape<O>>>
    : M extends DescMethodServerStreaming<infer I, infer O>
      ? Method<MessageShape<I>, AsyncIterable<MessageInitShape<O>>>
      : M extends DescMethodBiDiStreaming<infer I, infer O>
        ? Method<AsyncIterable<MessageShape<I>>, AsyncIterable<MessageInitShape<O>>>
        : never;

/** One function for each method of the service; a missing one does not compile. */
export type RpcImplementation<Service extends DescService> = {
  readonly [Name in keyof Service["method"]]: MethodImplementation<Service["method"][Name]>;
};

interface BoundMethod<M extends DescMethod> {
  readonly kind: M["methodKind"];
  readonly descriptor: M;
  /** Longest request message, in bytes; undefined: that of the server. */
  readonly maxMessageBytes: number | undefined;
  readonly refusesUnknownMembers: boolean;
  readonly admits: ((call: RpcCall) => Promise<void>) | undefined;
  readonly run: MethodImplementation<M>;
}

export type UnaryMethod = BoundMethod<DescMethodUnary>;
export type StreamingMethod = BoundMethod<DescMethodServerStreaming> | BoundMethod<DescMethodBiDiStreaming>;
export type RpcMethod = UnaryMethod | StreamingMethod;

/** A service with its implementation, for the servers. Opaque to other code. */
export interface RpcService {
  readonly descriptor: DescService;
  /** The priority of its unary methods, while not all requests can be answered. */
  readonly priority: Priority;
  readonly methods: readonly RpcMethod[];
}

interface ServiceOptions<Service extends DescService> {
  /** `low` unless given. */
  readonly priority?: Priority;
  /** The longest request messages of methods that take longer ones than the server's others, in bytes. */
  readonly maxMessageBytes?: { readonly [Name in keyof Service["method"]]?: number };
  /** Whether a request in JSON may only have members of its message. `false` unless given: callers may be newer. */
  readonly refusesUnknownMembers?: boolean;
  /** Rejects for a caller who may not call its unary methods, whose request is not read then. */
  readonly admits?: (call: RpcCall) => Promise<void>;
}

/** Binds a service to its implementation. @throws TypeError if a method is missing, or is client streaming */
export function implement<Service extends DescService>(
  service: Service,
  implementation: RpcImplementation<Service> & object,
  options: ServiceOptions<Service> = {},
): RpcService {
  const { priority = "low", maxMessageBytes = {}, refusesUnknownMembers = false, admits } = options;
  const limits = new Map<string, number | undefined>(Object.entries(maxMessageBytes));
  return {
    descriptor: service,
    priority,
    methods: service.methods.map((method) =>
      bindMethod(method, implementation, {
        maxMessageBytes: limits.get(method.localName),
        refusesUnknownMembers,
        admits,
      }),
    ),
  };
}

function bindMethod(
  descriptor: DescMethod,
  implementation: object,
  options: Pick<RpcMethod, "maxMessageBytes" | "refusesUnknownMembers" | "admits">,
): RpcMethod {
  const found: unknown = Reflect.get(implementation, descriptor.localName);
  if (typeof found !== "function") throw new TypeError(`${descriptor.toString()} has no implementation`);
  // The method's own types are lost here. The signature of implement() has checked them.
  const bound = { ...options, run: found.bind(implementation) };
  if (isOf<DescMethodUnary>("unary", descriptor)) return { ...bound, kind: "unary", descriptor };
  if (isOf<DescMethodServerStreaming>("server_streaming", descriptor))
    return { ...bound, kind: "server_streaming", descriptor };
  if (isOf<DescMethodBiDiStreaming>("bidi_streaming", descriptor))
    return { ...bound, kind: "bidi_streaming", descriptor };
  throw new TypeError(`${descriptor.toString()} is client streaming, which is not served`);
}

function isOf<M extends DescMethod>(kind: M["methodKind"], method: DescMethod): method is M {
  return method.methodKind === kind;
}
