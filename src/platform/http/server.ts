/** The server of SERVER_PORT and of the management port: HTTP/1.1 in cleartext, or HTTP/2 and HTTP/1.1 over TLS. */
import { createServer, type Server, type ServerResponse } from "node:http";
import { constants, createSecureServer, type Http2SecureServer, Http2ServerRequest } from "node:http2";
import type { AddressInfo, Server as NetServer } from "node:net";
import type { Duplex } from "node:stream";
import { getRequestListener, type Http2Bindings, type HttpBindings, RequestError } from "@hono/node-server";
import type { Logger } from "pino";
import { codeOf } from "../base/error-code.ts";
import { asServiceError, ErrorKinds, ServiceError, unavailable } from "../base/errors.ts";
import { RequestContext } from "../base/request-context.ts";
import type { Admission } from "../door/admission.ts";
import type { CorsPolicy } from "../door/cors-policy.ts";
import { createDoor, type Route } from "../door/door.ts";
import { endAfterRequest } from "../door/early-responses.ts";
import { Handshakes, handshakeMs } from "../door/handshakes.ts";
import { nodeResetLimit, resetStream, unlessReset } from "../door/resets.ts";
import {
  HttpResponse,
  type NodeRequest,
  type NodeResponse,
  problem,
  type ResponseParts,
  rendered,
  sendResponse,
  toResponse,
} from "../door/responses.ts";
import { type StallLimits, Stalls, stallLimits } from "../door/stalls.ts";
import type { Certificate } from "./certificate.ts";
import { Connections } from "./connections.ts";
import { ambiguousRequest, expectationFailed, respondAndClose, unreadableRequest } from "./refusals.ts";

/** Timeouts for a client, in milliseconds. */
export interface HttpTimeouts extends StallLimits {
  /** The time of a handshake, and from there, or the first byte of a further request, to the end of the headers. */
  readonly headersMs: number;
  /** The idle time between requests. It is longer than that of load balancers (60 s), so that they close first. */
  readonly keepAliveMs: number;
}

export const defaultTimeouts: HttpTimeouts = { headersMs: handshakeMs, ...stallLimits, keepAliveMs: 75_000 };

export interface HttpHandlers {
  readonly fetch: (request: Request, env: HttpBindings | Http2Bindings) => Response | Promise<Response>;
  /** What serves requests beside `fetch`, or says of those that it serves when they may be refused. */
  readonly routes?: readonly Route[];
  /** For pages of other origins; absent: for none. */
  readonly cors?: CorsPolicy | undefined;
  /** Absent: no request is refused while too many arrive. */
  readonly admission?: Admission | undefined;
}

interface HttpServerSettings {
  /** PEM texts, and cipher suites as OpenSSL writes them. With them the port speaks TLS. */
  readonly tls?: (Certificate & { readonly ciphers?: string }) | undefined;
  readonly logger: Logger;
  readonly timeouts?: HttpTimeouts;
  /** Milliseconds after which, more or less a tenth, a connection of HTTP/2 ends by GOAWAY; never unless given. */
  readonly maxConnectionAgeMs?: number | undefined;
  /** The host of requests that name none, as health checks over HTTP/1.0 do. Such requests are refused if absent. */
  readonly defaultHost?: string;
}

interface HttpServer {
  /** @param port 0 is any free port @returns the port */
  listen(host: string, port: number): Promise<number>;
  /** Sets the handlers. Until then every request gets a 503. */
  serve(handlers: HttpHandlers): void;
  /** Over TLS, has new connections use this certificate. */
  useCertificate(certificate: Certificate): void;
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
  const fail = (response: NodeResponse, thrown: unknown) => sendFailure(logger, response, thrown);
  let door = createDoor({
    serve: async (_route, _request, response) => fail(response, unavailable("The service", undefined, 1)),
    fail,
  });
  const server = tls ? secureServer(tls, timeouts) : cleartextServer(timeouts);
  const stalls = new Stalls(timeouts);
  const handshakes = tls && new Handshakes();
  handshakes?.watch(server, timeouts.headersMs);
  const { maxConnectionAgeMs: maxAgeMs } = settings;
  const limits = { maxConcurrentStreams, maxAgeMs, idleMs: timeouts.keepAliveMs };
  const connections = new Connections(server, limits, stalls, handshakes);
  /** The sockets of HTTP/1 whose last request has come: what comes behind it is not served. */
  const ended = new WeakSet<Duplex>();
  let closing: Promise<void> | undefined;

  server.on("request", (request: NodeRequest, response: NodeResponse) => {
    if (!(request instanceof Http2ServerRequest)) {
      take(request, response);
      return;
    }
    unlessReset(request.stream, () => take(request, response));
  });

  function take(request: NodeRequest, response: NodeResponse): void {
    const route = door.match(request);
    if (response instanceof HttpResponse) {
      if (ended.has(request.socket)) return;
      connections.track(response);
      // After one without Host, or with a transfer coding over HTTP/1.0, what follows may mean anything (RFC 9112).
      const { host, "transfer-encoding": coding } = request.headers;
      if (host === undefined || (coding !== undefined && request.httpVersion === "1.0")) endAfter(response);
    } else {
      stalls.watch(response.stream);
      endAfterRequest(response.stream, timeouts.requestMs);
    }
    // Before all other checks, since a refusal has to cost little.
    door.enter(route, request, response);
  }

  server.on("checkExpectation", (_request: NodeRequest, response: NodeResponse) => {
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

  function refuse(response: NodeResponse, refusal: ServiceError): void {
    if (response instanceof HttpResponse) endAfter(response);
    sendFailure(logger, response, refusal);
  }

  async function close(graceMs: number): Promise<void> {
    const cut = await connections.close(graceMs);
    if (cut > 0) logger.warn({ connections: cut }, "Connections were cut at the end of the grace");
  }

  return {
    listen: (host, port) => listening(server, host, port),
    serve({ fetch, ...handlers }) {
      const serveRest = listenerOf(fetch, settings);
      door = createDoor({
        ...handlers,
        fail,
        async serve(route, request, response) {
          try {
            const refusal = ambiguousRequest(request);
            if (refusal) refuse(response, refusal);
            else if (route?.handle) await route.handle(request, response);
            else await serveRest(request, response);
          } catch (thrown) {
            fail(response, thrown);
          }
        },
      });
    },
    useCertificate(certificate) {
      if ("setSecureContext" in server) server.setSecureContext({ ...tls, ...certificate });
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
    ...nodeResetLimit(maxConcurrentStreams),
  });
}

/** Hono's listener, for either version of HTTP. Rejects if a response cannot be written. */
function listenerOf(fetch: HttpHandlers["fetch"], { logger, defaultHost }: HttpServerSettings) {
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
  return (request: NodeRequest, response: NodeResponse): Promise<void> =>
    request instanceof Http2ServerRequest || !(response instanceof HttpResponse)
      ? http2Listener(request, response)
      : listener(request, response);
}

/** The response for an error that reached neither an API nor RPC. @param request undefined if none could be read */
function failure(logger: Logger, request: NodeRequest | undefined, thrown: unknown): ResponseParts {
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

function sendFailure(logger: Logger, response: NodeResponse, thrown: unknown): void {
  const parts = failure(logger, response.req, thrown);
  if (response.headersSent) {
    if (response instanceof HttpResponse) response.destroy();
    else resetStream(response.stream, constants.NGHTTP2_INTERNAL_ERROR);
    return;
  }
  // A response that could not be written has left its reason phrase and, beside the headers of CORS, its own.
  if (response instanceof HttpResponse) response.statusMessage = "";
  for (const name of response.getHeaderNames())
    if (!/^(vary$|access-control-)/.test(name)) response.removeHeader(name);
  sendResponse(response, rendered(parts));
}
