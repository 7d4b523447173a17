/**
 * A proto service and its one implementation, tied together for every protocol that serves it: native gRPC
 * (grpc-server.ts), and Connect and gRPC-Web (connect-handler.ts). Around each method runs the same
 * pipeline, in call.ts.
 */
import type {
  DescMessage,
  DescMethod,
  DescMethodServerStreaming,
  DescMethodUnary,
  DescService,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";
import type { RequestContext } from "../base/request-context.ts";

/** What a method is told of the call beside its request message. */
export interface RpcCall {
  readonly context: RequestContext;
  /** First value of the caller's metadata of this name (lower case), where it is text. */
  readonly metadata: (name: string) => string | undefined;
  /** Aborted when nobody waits for the answer any more: cancelled, past its deadline, or shutting down. */
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

/** Streaming requests are not served: such a method has no possible implementation, so it does not compile. */
type MethodImplementation<M extends DescMethod> =
  M extends DescMethodUnary<infer I, infer O>
    ? Unary<I, O>
    : M extends DescMethodServerStreaming<infer I, infer O>
      ? ServerStreaming<I, O>
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

export interface ServerStreamingMethod {
  readonly kind: "server_streaming";
  readonly descriptor: DescMethodServerStreaming;
  readonly run: ServerStreaming<DescMessage, DescMessage>;
}

export type RpcMethod = UnaryMethod | ServerStreamingMethod;

/** A service with its implementation: what the servers take. Callers need not look inside. */
export interface RpcService {
  readonly descriptor: DescService;
  readonly methods: readonly RpcMethod[];
}

/**
 * Ties a service to its implementation.
 * @throws TypeError for what the types refuse too: a missing method, or one that takes a stream
 */
export function implement<Service extends DescService>(
  service: Service,
  implementation: RpcImplementation<Service> & object,
): RpcService {
  return {
    descriptor: service,
    methods: service.methods.map((method) => bindMethod(method, implementation)),
  };
}

function bindMethod(descriptor: DescMethod, implementation: object): RpcMethod {
  const found: unknown = Reflect.get(implementation, descriptor.localName);
  if (typeof found !== "function") throw new TypeError(`${descriptor.toString()} has no implementation`);
  // Here the method's own types end: the signature of implement() has checked them.
  if (isUnary(descriptor)) return { kind: "unary", descriptor, run: found.bind(implementation) };
  if (isServerStreaming(descriptor)) {
    return { kind: "server_streaming", descriptor, run: found.bind(implementation) };
  }
  throw new TypeError(`${descriptor.toString()} takes a stream, which is not served`);
}

function isUnary(method: DescMethod): method is DescMethodUnary {
  return method.methodKind === "unary";
}

function isServerStreaming(method: DescMethod): method is DescMethodServerStreaming {
  return method.methodKind === "server_streaming";
}
