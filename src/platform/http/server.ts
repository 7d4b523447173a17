/** The server of SERVER_PORT and of the management port: HTTP/1.1 in cleartext, or HTTP/2 and HTTP/1.1 over TLS. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import {
  createSecureServer,
  type Http2SecureServer,
  Http2ServerRequest,
  type Http2ServerResponse,
} from "node:http2";
import type { AddressInfo, Server as NetServer } from "node:net";
import type { Duplex } from "node:stream";
import { getRequestListener, type Http2Bindings, type HttpBindings, RequestError } from "@hono/node-server";
import type { Logger } from "pino";
import { normalTarget, withoutQuery } from "../base/addresses.ts";
import { codeOf } from "../base/error-code.ts";
import { asServiceError, ErrorKinds, ServiceError, unavailable } from "../base/errors.ts";
import { problem, type ResponseParts, rendered, sendResponse, toResponse } from "../base/problem.ts";
import { RequestContext } from "../base/request-context.ts";
import type { Admission, Sheddable } from "../door/admission.ts";
import { endAfterRequest } from "../door/early-responses.ts";
import { Handshakes, handshakeMs } from "../door/handshakes.ts";
import { unlessReset } from "../door/resets.ts";
import { HttpResponse } from "../door/responding.ts";
import { type StallLimits, Stalls, stallLimits } from "../door/stalls.ts";
import { Connections } from "./connections.ts";
import type { FindDirect } from "./direct-requests.ts";
import { admit, type FindSheddable } from "./gate.ts";
import { ambiguousRequest, expectationFailed, respondAndClose, unreadableRequest } from "./refusals.ts";

type AnyRequest = IncomingMessage | Http2ServerRequest;
type AnyResponse = HttpResponse | Http2ServerResponse;
type Handler = (request: AnyRequest, response: AnyResponse) => void;
/** Calls `begin` for a request that is admitted, now or soon. Any other has been refused, or its client has gone. */
type PassGate = (request: AnyRequest, response: AnyResponse, begin: () => void) => void;

/** A handler for the RPC protocols, which are recognised by path. It takes Node's own requests and responses. */
export interface RpcHandler {
  /** @param path without the query */
  matches(path: string): boolean;
  /** Finds the method of a request; undefined if its requests are never refused. Absent: no method's are. */
  sheddable?(method: string, path: string): Sheddable | undefined;
  handle(request: AnyRequest, response: AnyResponse): void;
}

/** Timeouts for a client, in milliseconds. */
export interface HttpTimeouts extends StallLimits {
  /** The time of a handshake, and from there, or the first byte of a further request, to the end of the headers. */
  readonly headersMs: number;
  /** The idle time between requests. It is longer than that of load balancers (60 s), so that they close first. */
  readonly keepAliveMs: number;
}

export const defaultTimeouts: HttpTimeouts = { headersMs: handshakeMs, ...stallLimits, keepAliveMs: 75_000 };

interface Gate {
  readonly admission: Admission;
  readonly sheddable: FindSheddable;
}

export interface HttpHandlers {
  readonly fetch: (request: Request, env: HttpBindings | Http2Bindings) => Response | Promise<Response>;
  /** None unless given. */
  readonly rpc?: RpcHandler | undefined;
  /** Finds the route of a request of HTTP/1 that need not pass `fetch`. Absent: all do. */
  readonly direct?: FindDirect | undefined;
  /** The gate for requests that may be refused while too many arrive. Absent: none is refused. */
  readonly gate?: Gate | undefined;
}

interface HttpServerSettings {
  /** PEM texts. With them the port speaks TLS. */
  readonly tls?: { readonly cert: string; readonly key: string } | undefined;
  readonly logger: Logger;
  readonly timeouts?: HttpTimeouts;
  /** The host of requests that name none, as health checks over HTTP/1.0 do. Such requests are refused if absent. */
  readonly defaultHost?: string;
}

interface HttpServer {
  /** @param port 0 is any free port @returns the port */
  listen(host: string, port: number): Promise<number>;
  /** Sets the handlers. Until then every request gets a 503. */
  serve(handlers: HttpHandlers): void;
  /** Still accepts connections, but announces to clients that theirs will close (Connection: close, GOAWAY). */
  drain(): void;
  /** Stops accepting, closes idle connections, lets busy ones finish, and cuts them when the grace is over. */
  close(graceMs: number): Promise<void>;
}

/** Starts listening. @returns the port. Rejects if the address is not available */
export async function listening(server: NetServer, host: string, port: number): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.once("error", reject);
  server.listen({ host, port }, resolve);
  await promise;
  server.off("error", reject);
  const address: AddressInfo | string | null = server.address();
  return typeof address === "object" && address ? address.port : port;
}

export function createHttpServer(settings: HttpServerSettings): HttpServer {
  const { tls, logger, timeouts = defaultTimeouts } = settings;
  const starting: Handler = (_request, response) =>
    sendFailure(logger, response, unavailable("The service", undefined, 1));
  let handle: Handler = starting;
  let pass: PassGate = withoutGate;
  const server = tls ? secureServer(tls, timeouts) : cleartextServer(timeouts);
  const stalls = new Stalls(timeouts);
  const handshakes = tls && new Handshakes();
  handshakes?.watch(server, timeouts.headersMs);
  const connections = new Connections(server, timeouts.keepAliveMs, stalls, handshakes);
  /** The sockets of HTTP/1 whose last request has come: what comes behind it is not served. */
  const ended = new WeakSet<Duplex>();
  let closing: Promise<void> | undefined;

  server.on("request", (request: AnyRequest, response: AnyResponse) => {
    if (request instanceof Http2ServerRequest) unlessReset(request.stream, () => take(request, response));
    else take(request, response);
  });

  function take(request: AnyRequest, response: AnyResponse): void {
    normalize(request);
    if (response instanceof HttpResponse) {
      if (ended.has(request.socket)) return;
      connections.track(response);
      // After one without Host, or with a transfer coding over HTTP/1.0, what follows may mean anything (RFC 9112).
      const { host, "transfer-encoding": coding } = request.headers;
      if (host === undefined || (coding !== undefined && request.httpVersion === "1.0")) endAfter(response);
    } else {
      stalls.watchStream(response.stream);
      endAfterRequest(response.stream, timeouts.requestMs);
    }
    // Before all other checks, since a refusal has to cost little.
    pass(request, response, () => {
      const refusal = ambiguousRequest(request);
      if (refusal) refuse(response, refusal);
      else handle(request, response);
    });
  }

  server.on("checkExpectation", (_request: AnyRequest, response: AnyResponse) => {
    if (response instanceof HttpResponse) connections.track(response);
    refuse(response, expectationFailed());
  });
  // What is unreadable says nothing about the requests before it, so they get their responses. An error after the
  // headers of a response, such as a reset, leaves nothing that could be said.
  server.on("clientError", (error: Error, socket: Duplex) => {
    const unfinished = connections.unfinished(socket);
    const served = unfinished.findLast(({ req }) => req.complete);
    if (socket.writable && served) {
      if (!ended.has(socket)) served.once("close", () => served.req.socket.destroySoon());
      endAfter(served);
    } else if (!socket.writable || unfinished.some(({ headersSent }) => headersSent)) socket.destroy();
    else respondAndClose(socket, failure(logger, unfinished[0]?.req, unreadableRequest(error)));
  });

  function endAfter(response: ServerResponse): void {
    response.shouldKeepAlive = false;
    ended.add(response.req.socket);
  }

  function refuse(response: AnyResponse, refusal: ServiceError): void {
    if (response instanceof HttpResponse) endAfter(response);
    sendFailure(logger, response, refusal);
  }

  async function close(graceMs: number): Promise<void> {
    const cut = await connections.close(graceMs);
    if (cut > 0) logger.warn({ connections: cut }, "Connections were cut at the end of the grace");
  }

  return {
    listen: (host, port) => listening(server, host, port),
    serve(handlers) {
      handle = handlerOf(handlers, settings);
      pass = gateOf(handlers);
    },
    drain: () => connections.drain(),
    close(graceMs) {
      closing ??= close(graceMs);
      return closing;
    },
  };
}

/** Node enforces these timeouts, and checks them at the interval. */
function connectionOptions({ headersMs, requestMs, keepAliveMs }: HttpTimeouts) {
  return {
    headersTimeout: headersMs,
    requestTimeout: requestMs,
    keepAliveTimeout: keepAliveMs,
    connectionsCheckingInterval: Math.min(1000, headersMs),
    // Node would answer for itself, without a body; Hono's listener refuses such a request as well.
    requireHostHeader: false,
  };
}

/** Requests that a client may have in flight on one connection of HTTP/2. */
const maxConcurrentStreams = 256;

function cleartextServer(timeouts: HttpTimeouts): Server {
  return createServer({ ...connectionOptions(timeouts), ServerResponse: HttpResponse });
}

function secureServer(tls: { cert: string; key: string }, timeouts: HttpTimeouts): Http2SecureServer {
  const http1Options = connectionOptions(timeouts);
  return createSecureServer({
    ...tls,
    ...http1Options,
    allowHTTP1: true,
    Http1ServerResponse: HttpResponse,
    settings: { maxConcurrentStreams },
    // All requests of a client may be given up at once. Node takes the two together or not at all.
    streamResetBurst: maxConcurrentStreams,
    streamResetRate: 33,
  });
}

/** Before all that looks at the target. Few have anything to change. */
function normalize(request: AnyRequest): void {
  const { url = "", headers, httpVersion } = request;
  if (url.startsWith("/") && !url.includes("%")) return;
  const { target, authority } = normalTarget(url);
  request.url = target;
  // A Host has to be there even so, but for HTTP/1.0.
  if (authority !== undefined && (headers.host !== undefined || httpVersion === "1.0"))
    headers.host = authority;
}

const withoutGate: PassGate = (_request, _response, begin) => begin();

function gateOf({ rpc, gate }: HttpHandlers): PassGate {
  if (!gate) return withoutGate;
  return (request, response, begin) => {
    const { method = "GET", url = "/" } = request;
    const path = withoutQuery(url);
    // HTTP/2 permits any case, and Hono routes by upper case.
    const sheddable = rpc?.sheddable?.(method, path) ?? gate.sheddable(method.toUpperCase(), path);
    if (sheddable) admit(gate.admission, sheddable, request, response, begin);
    else begin();
  };
}

/** RPC paths go to the RPC handler, all other requests to the HTTP APIs: directly, or behind Hono's listener. */
function handlerOf(
  { fetch, rpc, direct }: HttpHandlers,
  { logger, defaultHost }: HttpServerSettings,
): Handler {
  const options = {
    ...(defaultHost !== undefined && { hostname: defaultHost }),
    // The listener rejects with what is thrown before it has a promise.
    errorHandler: (thrown: unknown) => Promise.reject(thrown),
  };
  const safely: typeof fetch = (request, env) => {
    const response = fetch(request, env);
    const failed = (thrown: unknown) => toResponse(failure(logger, env.incoming, thrown));
    return response instanceof Promise ? response.catch(failed) : response;
  };
  const listener = getRequestListener(safely, options);
  // Over HTTP/2 it would destroy a stream whose request nobody reads, instead of ending the response after the request.
  const http2Listener = getRequestListener(safely, { ...options, autoCleanupIncoming: false });
  return (request, response) => {
    if (rpc?.matches(withoutQuery(request.url ?? "/"))) {
      try {
        rpc.handle(request, response);
      } catch (thrown) {
        sendFailure(logger, response, thrown);
      }
      return;
    }
    // A direct route rejects if the response cannot be written, such as a header with a line break.
    const failed = (thrown: unknown) => sendFailure(logger, response, thrown);
    if (request instanceof Http2ServerRequest || !(response instanceof HttpResponse))
      http2Listener(request, response).catch(failed);
    else (direct?.(request)?.handle(request, response) ?? listener(request, response)).catch(failed);
  };
}

/** The response for an error that reached neither an API nor RPC. @param request undefined if none could be read */
function failure(logger: Logger, request: AnyRequest | undefined, thrown: unknown): ResponseParts {
  const id = request?.headers["x-request-id"];
  const context = new RequestContext(logger, typeof id === "string" ? id : undefined);
  const error = isBadTarget(thrown)
    ? new ServiceError(ErrorKinds.invalidRequest, "The request's target or Host header is not valid.")
    : asServiceError(thrown);
  if (error.kind.status >= 500) context.log.error({ err: thrown }, "An HTTP request failed");
  return problem(context, error.kind.status, { "X-Request-Id": context.requestId }, error);
}

/** Whether the target or the Host is invalid, by an error of Hono's listener or of Connect's URL. */
function isBadTarget(thrown: unknown): boolean {
  if (thrown instanceof RequestError) return true;
  return codeOf(thrown) === "ERR_INVALID_URL";
}

function sendFailure(logger: Logger, response: AnyResponse, thrown: unknown): void {
  const parts = failure(logger, response.req, thrown);
  if (response.headersSent) {
    response.destroy();
    return;
  }
  // A response that could not be written has left its reason phrase and, beside the headers of CORS, its own.
  if (response instanceof HttpResponse) response.statusMessage = "";
  for (const name of response.getHeaderNames())
    if (!/^(vary$|access-control-)/.test(name)) response.removeHeader(name);
  sendResponse(response, rendered(parts));
}
