/** Connect, gRPC and gRPC-Web over node:http and node:http2: a route for each method of the services. */
import type { IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { Code, ConnectError } from "@connectrpc/connect";
import { overloaded, type ServiceError } from "../base/errors.ts";
import type { Prioritized } from "../base/priority.ts";
import { RequestContext, requestIdOf } from "../base/request-context.ts";
import type { Route } from "../door/door.ts";
import type { NodeRequest, NodeResponse } from "../door/responses.ts";
import { RpcPipeline, type RpcPipelineOptions } from "./call.ts";
import { connectError } from "./faults.ts";
import { exchangeOf, Http2Exchange, type HttpExchange } from "./http-exchange.ts";
import { dialectOf, sendError, sendJsonError } from "./protocols.ts";
import type { RpcMethod, RpcService } from "./service.ts";
import { streamHandler } from "./streams.ts";
import { serveUnary } from "./unary.ts";

/** A method, for every HTTP method that is sent to its path, or all other paths of a service. */
export interface RpcRoute extends Route {
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
  /** Longest request message in bytes, before and after decompression, unless the method says; 65,536 unless given. */
  readonly maxMessageBytes?: number;
  /** Aborted when the server begins to shut down, as by `drain`. */
  readonly draining?: AbortSignal | undefined;
  /** For health and reflection. */
  readonly neverRefused?: boolean;
}

export interface RpcHandler {
  /** One for each method, and one for the other paths of each service. */
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
  const unknown = routeBy("", async (exchange) => respondWith(exchange, unknownMethod, 404));

  function routeOf({ descriptor, priority }: RpcService, method: RpcMethod): RpcRoute {
    const service = descriptor.typeName;
    const path = `/${service}/${method.descriptor.name}`;
    const limits = { request: method.maxMessageBytes ?? maxMessageBytes, response: maxResponseBytes };
    if (method.kind !== "unary") {
      const serve = streamHandler(pipeline, method, limits);
      const respond: Respond = (exchange) => {
        const { "x-request-id": id, traceparent } = exchange.headers;
        const [request, response] = exchange.node();
        serve(request, response, new RequestContext(logger, textOf(id), textOf(traceparent)));
        return new Promise((resolve) => response.once("close", resolve));
      };
      return routeBy(path, toPost(respond));
    }
    const respond: Respond = (exchange) => {
      const dialect = dialectOf(exchange.headers["content-type"]);
      if (dialect) return serveUnary(pipeline, method, dialect, exchange, limits);
      respondWith(exchange, otherContentType, 415);
      return over;
    };
    return routeBy(path, toPost(respond), neverRefused ? undefined : { service, priority });
  }

  for (const service of services)
    for (const protocol of ["connect", "grpc", "grpc-web"] as const) pipeline.serves(service, protocol);
  return {
    routes: services.flatMap((service) => [
      ...service.methods.map((method) => routeOf(service, method)),
      { ...unknown, path: `/${service.descriptor.typeName}/{method}` },
    ]),
    unknown,
    drain: () => pipeline.drain(),
    stopAll: () => pipeline.stopAll(),
  };
}

type Respond = (exchange: HttpExchange) => Promise<void>;

/** Responds to a POST so, and to all else without a call. */
function toPost(respond: Respond): Respond {
  return (exchange) => {
    // HTTP/2 permits any case.
    const method = exchange.method?.toUpperCase();
    if (method === "POST") return respond(exchange);
    const headers = { "x-request-id": requestIdOf(exchange.headers["x-request-id"]) };
    if (method !== "OPTIONS") exchange.send(405, { ...headers, allow: "POST" });
    else exchange.send(204, { ...headers, allow: "OPTIONS, POST" });
    return over;
  };
}

function routeBy(path: string, handle: Respond, sheddable?: Prioritized): RpcRoute {
  const refuse: RpcRoute["refuse"] = (exchange, reason = overloaded) =>
    respondWith(exchange, connectError(reason), reason.kind.status);
  return {
    method: undefined,
    path,
    sheddable: sheddable && { ...sheddable, refuse: (_request, response) => refuse(exchangeOf(response)) },
    handle: (_request, response) => handle(exchangeOf(response)),
    handleStream: (stream, headers) => handle(new Http2Exchange(stream, headers)),
    refuse,
  };
}

/** Responds without a call: in the caller's protocol, or with the HTTP status. */
function respondWith(exchange: HttpExchange, error: ConnectError, httpStatus: number): void {
  const dialect = dialectOf(exchange.headers["content-type"]);
  const responseHeaders = { "x-request-id": requestIdOf(exchange.headers["x-request-id"]) };
  if (dialect) sendError(exchange, dialect, { responseHeaders }, error);
  else sendJsonError(exchange, httpStatus, responseHeaders, error);
}

/** Longest response message, in bytes: the default limit of gRPC clients. */
const maxResponseBytes = 4 * 1024 * 1024;
const over = Promise.resolve();
const unknownMethod = new ConnectError(
  "There is no such method over RPC. The HTTP APIs are on the port of SERVER_PORT alone.",
  Code.Unimplemented,
);
const otherContentType = new ConnectError(
  "The content type has to be application/proto or application/json (Connect), application/grpc (gRPC), or application/grpc-web (gRPC-Web).",
  Code.Unimplemented,
);

function textOf(header: string | string[] | undefined): string | undefined {
  return typeof header === "string" ? header : undefined;
}
