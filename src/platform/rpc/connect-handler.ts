/** Connect, gRPC-Web, and gRPC over HTTP/2, on the port of the HTTP APIs, for node:http and node:http2. */
import {
  ConnectError,
  type ConnectRouter,
  createConnectRouter,
  createContextKey,
  createContextValues,
  type HandlerContext,
} from "@connectrpc/connect";
import {
  compressionBrotli,
  compressionGzip,
  universalRequestFromNodeRequest,
  universalResponseToNodeResponse,
} from "@connectrpc/connect-node";
import { overloaded } from "../base/errors.ts";
import type { RpcProtocol } from "../base/observers.ts";
import { RequestContext } from "../base/request-context.ts";
import { type CorsPolicy, setCorsHeaders } from "../door/cors-policy.ts";
import type { Route } from "../door/door.ts";
import type { NodeRequest, NodeResponse } from "../door/responding.ts";
import { withoutQuery } from "../door/targets.ts";
import { maxResponseBytes, RpcPipeline, type RpcPipelineOptions } from "./active-calls.ts";
import { type ActiveCall, cancelled, connectError } from "./call.ts";
import { send, sendPreflight, sendStatus, sendUnknownMethod } from "./connect-responses.ts";
import { prioritizedMethods, type RpcMethod, type RpcService } from "./service.ts";
import { clampTimeout } from "./timeouts.ts";

export interface ConnectHandlerOptions extends RpcPipelineOptions {
  readonly services: readonly RpcService[];
  /** Longest request message, before and after decompression. */
  readonly maxMessageBytes?: number;
  /** The policy for pages of other origins; unless given, browsers block their requests. */
  readonly cors?: CorsPolicy;
  /** Aborted when the server begins to shut down: streams end, other calls finish. */
  readonly draining?: AbortSignal;
}

interface ConnectHandler {
  /** Of each path below the services, whether or not it is that of a method. */
  readonly routes: readonly Route[];
  /** Always responds, or destroys the connection; never rejects. */
  handle(request: NodeRequest, response: NodeResponse): Promise<void>;
}

interface Arrival {
  readonly context: RequestContext;
  /** Aborted when the caller has disconnected. */
  connection?: AbortSignal;
  call?: ActiveCall;
}

const arrivalKey = createContextKey<Arrival | undefined>(undefined, { description: "arrival" });

export function createConnectHandler(options: ConnectHandlerOptions): ConnectHandler {
  const pipeline = new RpcPipeline(options);
  options.draining?.addEventListener("abort", () => pipeline.drain(), { once: true });
  const router = createConnectRouter({
    readMaxBytes: options.maxMessageBytes ?? 65_536,
    writeMaxBytes: maxResponseBytes,
    acceptCompression: [compressionGzip, compressionBrotli],
    requestGate: (context) => beginCall(pipeline, context),
  });
  for (const service of options.services) {
    for (const method of service.methods) addMethod(router, method);
    pipeline.serves(service, "connect");
    pipeline.serves(service, "grpc-web");
  }
  const handlers = new Map(router.handlers.map((handler) => [handler.requestPath, handler]));
  // A preflight, and what is no method, is never refused.
  const below = options.services.map(({ descriptor }) => `/${descriptor.typeName}/{method}`);
  const unguarded = [...handlers.keys(), ...below].map(
    (path): Route => ({ method: undefined, path, handle }),
  );
  const guarded = [...prioritizedMethods(options.services)].flatMap(([path, prioritized]) =>
    ["GET", "POST"].map((method): Route => ({ method, path, sheddable: { ...prioritized, refuse }, handle })),
  );

  /** Responds to a request that is not a call. @returns whether it has responded */
  function respondWithoutCall(request: NodeRequest, response: NodeResponse, path: string): boolean {
    const handler = handlers.get(path);
    const allowed = handler?.allowedMethods ?? ["POST"];
    if (request.method === "OPTIONS") sendPreflight(request, response, options.cors, allowed);
    else if (!allowed.includes(request.method ?? "")) send(response, 405, { allow: allowed.join(", ") });
    else if (!handler) sendUnknownMethod(request, response);
    else return false;
    return true;
  }

  function contextOf(request: NodeRequest): RequestContext {
    return new RequestContext(
      options.logger,
      firstHeader(request, "x-request-id"),
      firstHeader(request, "traceparent"),
    );
  }

  function refuse(request: NodeRequest, response: NodeResponse): void {
    response.setHeader("x-request-id", contextOf(request).requestId);
    setCorsHeaders(request, response, options.cors);
    sendStatus(request, response, connectError(overloaded), overloaded.kind.status);
  }

  async function handle(request: NodeRequest, response: NodeResponse): Promise<void> {
    const context = contextOf(request);
    try {
      response.setHeader("x-request-id", context.requestId);
      setCorsHeaders(request, response, options.cors);
      const path = withoutQuery(request.url ?? "");
      if (respondWithoutCall(request, response, path)) return;
      const handler = handlers.get(path);
      const arrival: Arrival = { context };
      clampTimeout(request.headers);
      const universal = readRequest(request, response, arrival);
      if (!handler || !universal) send(response, 400);
      else await universalResponseToNodeResponse(await handler(universal), response);
    } catch (thrown) {
      // The caller disconnected during the response, or no response could be made.
      context.log.debug({ err: thrown }, "An RPC response could not be sent");
      response.destroy();
    }
  }

  return { routes: [...guarded, ...unguarded], handle };
}

/** @returns undefined if the request has no valid authority */
function readRequest(request: NodeRequest, response: NodeResponse, arrival: Arrival) {
  const values = createContextValues().set(arrivalKey, arrival);
  try {
    const universal = universalRequestFromNodeRequest(request, response, undefined, values);
    arrival.connection = universal.signal;
    return { ...universal, body: readBody(request, arrival) };
  } catch {
    return undefined;
  }
}

/** The body. Reading ends with the call, and its unread rest is discarded, so that the caller gets the response. */
function readBody(request: NodeRequest, arrival: Arrival): AsyncIterable<Uint8Array> {
  const chunks: AsyncIterator<Uint8Array> = request.iterator({ destroyOnReturn: false });
  const close = async () => chunks.return?.();
  const drop = () =>
    void close().then(
      () => request.resume(),
      () => undefined,
    );
  return {
    [Symbol.asyncIterator]: () => ({
      async next() {
        try {
          return await (arrival.call?.orStopped(() => chunks.next()) ?? chunks.next());
        } catch (thrown) {
          drop();
          throw thrown;
        }
      },
      async return() {
        drop();
        return { done: true, value: undefined };
      },
    }),
  };
}

/** Runs before the body is read, so that calls with an invalid body are logged and counted too. */
function beginCall(pipeline: RpcPipeline, context: HandlerContext): void {
  const arrival = context.values.get(arrivalKey);
  const call = pipeline.begin({
    method: context.method,
    protocol: protocolOf(context.protocolName),
    metadata: (name) => context.requestHeader.get(name) ?? undefined,
    hasDeadline: context.timeoutMs() !== undefined,
    context: arrival?.context,
  });
  if (arrival) arrival.call = call;
  const { signal } = context;
  const stop = () =>
    call.stop(() => {
      // A closed connection has many different reasons, all of which mean that the caller has disconnected.
      const disconnected = arrival?.connection?.aborted || !(signal.reason instanceof ConnectError);
      return disconnected ? cancelled() : signal.reason;
    });
  // The signal is also aborted after every call that has ended.
  if (signal.aborted) stop();
  else signal.addEventListener("abort", stop, { once: true });
}

function addMethod(router: ConnectRouter, method: RpcMethod): void {
  if (method.kind === "unary") {
    router.rpc(method.descriptor, (request, context) => callOf(context).unary(method, request, unencoded));
  } else if (method.kind === "server_streaming") {
    router.rpc(method.descriptor, (request, context) => callOf(context).stream(method, request, unencoded));
  }
}

function callOf(context: HandlerContext): ActiveCall {
  const call = context.values.get(arrivalKey)?.call;
  if (!call) throw new Error("The request gate has not run");
  return call;
}

function unencoded<T>(message: T): T {
  return message;
}

function protocolOf(name: string): RpcProtocol {
  return name === "grpc" || name === "grpc-web" ? name : "connect";
}

function firstHeader(request: NodeRequest, name: string): string | undefined {
  const value = request.headers[name];
  return Array.isArray(value) ? value[0] : value;
}
