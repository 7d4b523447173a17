/** Connect, gRPC and gRPC-Web over node:http and node:http2: a route for each method of the services. */
import {
  Http2ServerRequest,
  Http2ServerResponse,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from "node:http2";
import { Code, ConnectError } from "@connectrpc/connect";
import { codeToHttpStatus } from "@connectrpc/connect/protocol-connect";
import type { Logger } from "pino";
import { overloaded, type ServiceError } from "../base/errors.ts";
import type { Prioritized } from "../base/priority.ts";
import { RequestContext } from "../base/request-context.ts";
import { ActiveUnaryCall, connectError, RpcPipeline, type RpcPipelineOptions } from "./call.ts";
import { dialectOf } from "./dialects.ts";
import { noCall } from "./faults.ts";
import {
  exchangeOf,
  Http2Exchange,
  type HttpExchange,
  type MessageLimits,
  type NodeRequest,
  type NodeResponse,
} from "./http-exchange.ts";
import { sendJsonError, sendStreamError, sendTrailersOnly } from "./responses.ts";
import type { RpcMethod, RpcService } from "./service.ts";
import { type ServeStream, streamHandler } from "./streams.ts";
import { serveUnary } from "./unary.ts";
import type { UnaryBinding } from "./unary-call.ts";

/** The path of a method, in both forms in which its requests come. It serves every HTTP method. */
export interface RpcRoute {
  /** `/package.Service/Method` */
  readonly path: string;
  /** Undefined if its requests are never refused. */
  readonly sheddable: Prioritized | undefined;
  /**
   * HTTP/1.1, or HTTP/2 behind Node's compatibility objects. Always responds, or ends the connection; never throws.
   * @returns a promise that is pending while the work for the request goes on, even if its caller has gone
   */
  handle(request: NodeRequest, response: NodeResponse): Promise<void>;
  /** HTTP/2 by its core API, otherwise like `handle`. */
  handleStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): Promise<void>;
  /** Refuses a request, under overload unless there is another reason. Nothing of its body has been read. */
  refuse(exchange: HttpExchange, reason?: ServiceError): void;
}

export interface RpcHandlerOptions extends RpcPipelineOptions {
  readonly services: readonly RpcService[];
  /** Longest request message in bytes, before and after decompression; 65,536 unless given. */
  readonly maxMessageBytes?: number;
  /** Aborted when the server begins to shut down, as by `drain`. */
  readonly draining?: AbortSignal | undefined;
  /** For health and reflection. */
  readonly neverRefused?: boolean;
}

export interface RpcHandler {
  readonly routes: readonly RpcRoute[];
  /** For any other path: UNIMPLEMENTED to a caller of one of the protocols, otherwise 404. */
  readonly unknown: RpcRoute;
  /** Ends streams, present and future, and lets the other calls finish. */
  drain(): void;
  /** Ends all calls. */
  stopAll(): void;
}

export function createRpcHandler(options: RpcHandlerOptions): RpcHandler {
  const { logger, services, draining, maxMessageBytes = 65_536, neverRefused = false } = options;
  const pipeline = new RpcPipeline(options);
  draining?.addEventListener("abort", () => pipeline.drain(), { once: true });
  const limits = { request: maxMessageBytes, response: maxResponseBytes };

  function routeOf({ descriptor, priority }: RpcService, method: RpcMethod): RpcRoute {
    const service = descriptor.typeName;
    const shared = { path: `/${service}/${method.descriptor.name}`, logger };
    if (method.kind !== "unary") return streamRoute(shared, streamHandler(pipeline, method, limits));
    const binding: UnaryBinding = {
      descriptor: method.descriptor,
      begin: (caller) => pipeline.begin(new ActiveUnaryCall(method, caller, pipeline.options)),
    };
    const sheddable = neverRefused ? undefined : { service, priority };
    return unaryRoute({ ...shared, sheddable }, binding, limits);
  }

  for (const service of services)
    for (const protocol of ["connect", "grpc", "grpc-web"] as const) pipeline.serves(service, protocol);
  return {
    routes: services.flatMap((service) => service.methods.map((method) => routeOf(service, method))),
    unknown: unknownRoute({ path: "", logger }),
    drain: () => pipeline.drain(),
    stopAll: () => pipeline.stopAll(),
  };
}

interface RouteOptions {
  readonly path: string;
  readonly logger: Logger;
  readonly sheddable?: Prioritized | undefined;
}

/** Responds to a POST. @param node Node's own request and response, for connect-node */
type Respond = (exchange: HttpExchange, node: () => [NodeRequest, NodeResponse]) => Promise<void>;

function routeBy(respond: Respond, { path, sheddable, logger }: RouteOptions): RpcRoute {
  const handle: Respond = (exchange, node) => {
    if (exchange.method === "POST") return respond(exchange, node);
    const headers = { "x-request-id": contextOf(logger, exchange).requestId };
    if (exchange.method !== "OPTIONS") exchange.send(noCall.wrongVerb, { ...headers, allow: "POST" });
    else exchange.send(204, { ...headers, allow: "OPTIONS, POST" });
    return over;
  };
  return {
    path,
    sheddable,
    handle: (request, response) => handle(exchangeOf(request, response), () => [request, response]),
    handleStream: (stream, headers) =>
      handle(new Http2Exchange(stream, headers), () => [
        new Http2ServerRequest(stream, headers, {}, []),
        new Http2ServerResponse(stream),
      ]),
    refuse(exchange, reason) {
      const error = reason ? connectError(reason) : overload;
      respondWith(logger, exchange, error, (reason ?? overloaded).kind.status);
    },
  };
}

export function unaryRoute(options: RouteOptions, binding: UnaryBinding, limits: MessageLimits): RpcRoute {
  return routeBy((exchange) => {
    const dialect = dialectOf(textOf(exchange.headers["content-type"]));
    if (dialect) return serveUnary(binding, dialect, exchange, limits);
    const headers = { "x-request-id": contextOf(options.logger, exchange).requestId };
    sendJsonError(exchange, noCall.otherContentType, headers, otherContentType);
    return over;
  }, options);
}

function streamRoute(options: RouteOptions, serve: ServeStream): RpcRoute {
  return routeBy((exchange, node) => {
    const [request, response] = node();
    serve(request, response, contextOf(options.logger, exchange));
    return new Promise((resolve) => response.once("close", resolve));
  }, options);
}

/** For paths of no method. */
function unknownRoute(options: RouteOptions): RpcRoute {
  return routeBy((exchange) => {
    respondWith(options.logger, exchange, unknownMethod, noCall.unknownPath);
    return over;
  }, options);
}

function contextOf(logger: Logger, { headers }: HttpExchange): RequestContext {
  const { "x-request-id": id, traceparent } = headers;
  return new RequestContext(logger, textOf(id), textOf(traceparent));
}

/** Responds without a call: in the caller's protocol, or with the HTTP status. */
function respondWith(logger: Logger, exchange: HttpExchange, error: ConnectError, httpStatus: number): void {
  const contentType = textOf(exchange.headers["content-type"])?.toLowerCase() ?? "";
  const dialect = dialectOf(contentType);
  const headers = { "x-request-id": contextOf(logger, exchange).requestId };
  if (dialect?.protocol === "connect") sendJsonError(exchange, codeToHttpStatus(error.code), headers, error);
  else if (dialect) sendTrailersOnly(exchange, dialect, headers, error);
  else if (/^application\/connect\+(proto|json)$/.test(contentType))
    sendStreamError(exchange, contentType, headers, error);
  else sendJsonError(exchange, httpStatus, headers, error);
}

/** Longest response message, in bytes: the default limit of gRPC clients. */
const maxResponseBytes = 4 * 1024 * 1024;
const over = Promise.resolve();
const overload = connectError(overloaded);
const unknownMethod = new ConnectError("The service has no such method.", Code.Unimplemented);
const otherContentType = new ConnectError(
  "The content type has to be application/proto or application/json (Connect), application/grpc (gRPC), or application/grpc-web (gRPC-Web).",
  Code.Unimplemented,
);

function textOf(header: string | string[] | undefined): string | undefined {
  return typeof header === "string" ? header : undefined;
}
