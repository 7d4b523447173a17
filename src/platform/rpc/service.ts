/** A proto service and its implementation, bound once for every protocol; call.ts runs around each method. */
import type {
  DescMessage,
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

type Unary<I extends DescMessage, O extends DescMessage> = (
  request: MessageShape<I>,
  call: RpcCall,
) => Promise<MessageInitShape<O>>;

type ServerStreaming<I extends DescMessage, O extends DescMessage> = (
  request: MessageShape<I>,
  call: RpcCall,
) => AsyncIterable<MessageInitShape<O>>;

type BidiStreaming<I extends DescMessage, O extends DescMessage> = (
  requests: AsyncIterable<MessageShape<I>>,
  call: RpcCall,
) => AsyncIterable<MessageInitShape<O>>;

/** Client streaming is not supported: such a method has the type `never`, so no implementation compiles. */
type MethodImplementation<M extends DescMethod> =
  M extends DescMethodUnary<infer I, infer O>
    ? Unary<I, O>
    : M extends DescMethodServerStreaming<infer I, infer O>
      ? ServerStreaming<I, O>
      : M extends DescMethodBiDiStreaming<infer I, infer O>
        ? BidiStreaming<I, O>
        : never;

/** One function for each method of the service; a missing one does not compile. */
export type RpcImplementation<Service extends DescService> = {
  readonly [Name in keyof Service["method"]]: MethodImplementation<Service["method"][Name]>;
};

export interface UnaryMethod {
  readonly kind: "unary";
  readonly descriptor: DescMethodUnary;
  readonly run: Unary<DescMessage, DescMessage>;
}

interface ServerStreamingMethod {
  readonly kind: "server_streaming";
  readonly descriptor: DescMethodServerStreaming;
  readonly run: ServerStreaming<DescMessage, DescMessage>;
}

interface BidiStreamingMethod {
  readonly kind: "bidi_streaming";
  readonly descriptor: DescMethodBiDiStreaming;
  readonly run: BidiStreaming<DescMessage, DescMessage>;
}

export type StreamingMethod = ServerStreamingMethod | BidiStreamingMethod;
export type RpcMethod = UnaryMethod | StreamingMethod;

/** A service with its implementation, for the servers. Opaque to other code. */
export interface RpcService {
  readonly descriptor: DescService;
  /** The priority of its unary methods, while not all requests can be answered. */
  readonly priority: Priority;
  readonly methods: readonly RpcMethod[];
}

/** Binds a service to its implementation. @throws TypeError if a method is missing, or is client streaming */
export function implement<Service extends DescService>(
  service: Service,
  implementation: RpcImplementation<Service> & object,
  priority: Priority = "low",
): RpcService {
  return {
    descriptor: service,
    priority,
    methods: service.methods.map((method) => bindMethod(method, implementation)),
  };
}

function bindMethod(descriptor: DescMethod, implementation: object): RpcMethod {
  const found: unknown = Reflect.get(implementation, descriptor.localName);
  if (typeof found !== "function") throw new TypeError(`${descriptor.toString()} has no implementation`);
  // The method's own types are lost here. The signature of implement() has checked them.
  if (isUnary(descriptor)) return { kind: "unary", descriptor, run: found.bind(implementation) };
  if (isServerStreaming(descriptor)) {
    return { kind: "server_streaming", descriptor, run: found.bind(implementation) };
  }
  if (isBidiStreaming(descriptor)) {
    return { kind: "bidi_streaming", descriptor, run: found.bind(implementation) };
  }
  throw new TypeError(`${descriptor.toString()} is client streaming, which is not served`);
}

function isUnary(method: DescMethod): method is DescMethodUnary {
  return method.methodKind === "unary";
}

function isServerStreaming(method: DescMethod): method is DescMethodServerStreaming {
  return method.methodKind === "server_streaming";
}

function isBidiStreaming(method: DescMethod): method is DescMethodBiDiStreaming {
  return method.methodKind === "bidi_streaming";
}
