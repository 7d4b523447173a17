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
import { type CorsPolicy, setCorsHeaders } from "../door/cors-policy.ts";
import { maxResponseBytes, RpcPipeline, type RpcPipelineOptions } from "./active-calls.ts";
import { connectError } from "./call.ts";
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
  refuse(request: NodeRequest, response: NodeResponse): void;
  refuseStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, reason?: ServiceError): void;
}

export interface RpcHandlerOptions extends RpcPipelineOptions {
  readonly services: readonly RpcService[];
  /** Longest request message in bytes, before and after decompression; 65,536 unless given. */
  readonly maxMessageBytes?: number;
  /** The policy for pages of other origins; unless given, browsers block their requests. Not for core streams. */
  readonly cors?: CorsPolicy | undefined;
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
  const { logger, cors, services, draining, maxMessageBytes = 65_536, neverRefused = false } = options;
  const pipeline = new RpcPipeline(options);
  draining?.addEventListener("abort", () => pipeline.drain(), { once: true });
  const limits = { request: maxMessageBytes, response: maxResponseBytes };

  function routeOf({ descriptor, priority }: RpcService, method: RpcMethod): RpcRoute {
    const service = descriptor.typeName;
    const shared = { path: `/${service}/${method.descriptor.name}`, logger, cors };
    if (method.kind !== "unary") return new StreamRoute(shared, streamHandler(pipeline, method, limits));
    const binding: UnaryBinding = {
      descriptor: method.descriptor,
      begin: (caller) => pipeline.beginUnary(method, caller),
    };
    const sheddable = neverRefused ? undefined : { service, priority };
    return new UnaryRoute({ ...shared, sheddable }, binding, limits);
  }

  for (const service of services)
    for (const protocol of ["connect", "grpc", "grpc-web"] as const) pipeline.serves(service, protocol);
  return {
    routes: services.flatMap((service) => service.methods.map((method) => routeOf(service, method))),
    unknown: new UnknownRoute({ path: "", logger, cors }),
    drain: () => pipeline.drain(),
    stopAll: () => pipeline.stopAll(),
  };
}

interface RouteOptions {
  readonly path: string;
  readonly logger: Logger;
  readonly cors?: CorsPolicy | undefined;
  readonly sheddable?: Prioritized | undefined;
}

abstract class Route implements RpcRoute {
  readonly path: string;
  readonly sheddable: Prioritized | undefined;
  readonly #logger: Logger;
  readonly #cors: CorsPolicy | undefined;

  constructor({ path, sheddable, logger, cors }: RouteOptions) {
    this.path = path;
    this.sheddable = sheddable;
    this.#logger = logger;
    this.#cors = cors;
  }

  handle(request: NodeRequest, response: NodeResponse): Promise<void> {
    setCorsHeaders(request, response, this.#cors);
    if (request.method === "POST") return this.call(request, response);
    this.#respondToVerb(exchangeOf(request, response), request.method);
    return over;
  }

  handleStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): Promise<void> {
    if (headers[":method"] === "POST") return this.callStream(stream, headers);
    this.#respondToVerb(new Http2Exchange(stream, headers), headers[":method"]);
    return over;
  }

  refuse(request: NodeRequest, response: NodeResponse): void {
    setCorsHeaders(request, response, this.#cors);
    this.respondWith(exchangeOf(request, response), overload, overloaded.kind.status);
  }

  refuseStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, reason = overloaded): void {
    const error = reason === overloaded ? overload : connectError(reason);
    this.respondWith(new Http2Exchange(stream, headers), error, reason.kind.status);
  }

  /** Responds to a POST. */
  protected abstract call(request: NodeRequest, response: NodeResponse): Promise<void>;
  protected abstract callStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): Promise<void>;

  protected contextOf({ headers }: Pick<HttpExchange, "headers">): RequestContext {
    const { "x-request-id": id, traceparent } = headers;
    return new RequestContext(this.#logger, textOf(id), textOf(traceparent));
  }

  /** Responds without a call: in the caller's protocol, or with the HTTP status. */
  protected respondWith(exchange: HttpExchange, error: ConnectError, httpStatus: number): void {
    const { "content-type": type } = exchange.headers;
    const contentType = textOf(type)?.toLowerCase() ?? "";
    const dialect = dialectOf(contentType);
    const headers = { "x-request-id": this.contextOf(exchange).requestId };
    if (dialect?.protocol === "connect")
      sendJsonError(exchange, codeToHttpStatus(error.code), headers, error);
    else if (dialect) sendTrailersOnly(exchange, dialect, headers, error);
    else if (/^application\/connect\+(proto|json)$/.test(contentType))
      sendStreamError(exchange, contentType, headers, error);
    else sendJsonError(exchange, httpStatus, headers, error);
  }

  #respondToVerb(exchange: HttpExchange, method = ""): void {
    const headers = { "x-request-id": this.contextOf(exchange).requestId };
    if (method !== "OPTIONS") exchange.send(noCall.wrongVerb, { ...headers, allow: "POST" });
    else exchange.send(204, { ...headers, allow: "OPTIONS, POST", ...this.#preflight(exchange) });
  }

  #preflight({ headers: { origin } }: HttpExchange) {
    const cors = this.#cors;
    if (!cors || typeof origin !== "string" || !cors.origins.includes(origin)) return undefined;
    return {
      "access-control-allow-methods": "POST",
      "access-control-allow-headers": cors.allowedHeaders.join(","),
      "access-control-max-age": `${cors.maxAgeSeconds}`,
    };
  }
}

export class UnaryRoute extends Route {
  readonly #binding: UnaryBinding;
  readonly #limits: MessageLimits;

  constructor(options: RouteOptions, binding: UnaryBinding, limits: MessageLimits) {
    super(options);
    this.#binding = binding;
    this.#limits = limits;
  }

  protected override call(request: NodeRequest, response: NodeResponse): Promise<void> {
    return this.#serve(exchangeOf(request, response));
  }

  protected override callStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): Promise<void> {
    return this.#serve(new Http2Exchange(stream, headers));
  }

  #serve(exchange: HttpExchange): Promise<void> {
    const dialect = dialectOf(textOf(exchange.headers["content-type"]));
    if (dialect) return serveUnary(this.#binding, dialect, exchange, this.#limits);
    const headers = { "x-request-id": this.contextOf(exchange).requestId };
    sendJsonError(exchange, noCall.otherContentType, headers, otherContentType);
    return over;
  }
}

class StreamRoute extends Route {
  readonly #serve: ServeStream;

  constructor(options: RouteOptions, serve: ServeStream) {
    super(options);
    this.#serve = serve;
  }

  protected override call(request: NodeRequest, response: NodeResponse): Promise<void> {
    this.#serve(request, response, this.contextOf(request));
    return new Promise((resolve) => response.once("close", resolve));
  }

  protected override callStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): Promise<void> {
    return this.call(new Http2ServerRequest(stream, headers, {}, []), new Http2ServerResponse(stream));
  }
}

/** For paths of no method. */
class UnknownRoute extends Route {
  protected override call(request: NodeRequest, response: NodeResponse): Promise<void> {
    this.respondWith(exchangeOf(request, response), unknownMethod, noCall.unknownPath);
    return over;
  }

  protected override callStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): Promise<void> {
    this.respondWith(new Http2Exchange(stream, headers), unknownMethod, noCall.unknownPath);
    return over;
  }
}

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
