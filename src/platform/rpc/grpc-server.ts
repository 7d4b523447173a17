/**
 * The server of GRPC_PORT: native gRPC, and Connect and gRPC-Web, over HTTP/2. It serves grpc.health.v1 and server
 * reflection besides the services.
 */
import { once } from "node:events";
import type { SecureServerOptions, ServerHttp2Session } from "node:http2";
import type { Socket } from "node:net";
import { Server as TlsServer } from "node:tls";
import type { RpcObserver } from "../base/observers.ts";
import type { Admission } from "../door/admission.ts";
import { Handshakes, handshakeMs } from "../door/handshakes.ts";
import { nodeResetLimit } from "../door/resets.ts";
import { keepWhileOpen, openSessions } from "../door/sessions.ts";
import { type StallLimits, Stalls, stallLimits } from "../door/stalls.ts";
import type { RpcPipelineOptions } from "./call.ts";
import { type ConnectionTimes, connectionTimes, GrpcConnection, type Shared } from "./grpc-connection.ts";
import { createRpcHandler, type RpcHandler } from "./handler.ts";
import { createHealth, type HealthService } from "./health.ts";
import { createHttp2Listener } from "./http2-listener.ts";
import { createReflection } from "./reflection.ts";
import type { RpcService } from "./service.ts";

export interface GrpcServerOptions extends RpcPipelineOptions {
  /** PEM, and the cipher suites as OpenSSL writes them. Cleartext HTTP/2 if absent. */
  readonly tls?: Pick<SecureServerOptions, "cert" | "key" | "ciphers"> | undefined;
  /** Longest request message, before and after decompression. */
  readonly maxMessageBytes?: number;
  /** The time of a handshake, in milliseconds; ten seconds unless given. */
  readonly handshakeMs?: number | undefined;
  /** Refuses calls while too many arrive; none are refused unless given. */
  readonly admission?: Admission | undefined;
  /** Times for the clients; the default ones unless given, as those of connections. */
  readonly stalls?: StallLimits | undefined;
  readonly connections?: ConnectionTimes | undefined;
  /** The age, in milliseconds, at which a connection is closed by GOAWAY, give or take a tenth; none unless given. */
  readonly maxConnectionAgeMs?: number | undefined;
}

export interface GrpcServer {
  /**
   * @param port 0 for any free one
   * @returns the port
   * @throws an error with `code` and `port`, such as EADDRINUSE
   */
  listen(host: string, port: number): Promise<number>;
  /** Adds the services, health and reflection, before or after the server listens. Call it once. */
  serve(services: readonly RpcService[]): void;
  /**
   * Sets the status in grpc.health.v1 of these services, all unless given. The whole server serves while all of its
   * services do. The first status is NOT_SERVING.
   */
  setServing(serving: boolean, services?: readonly RpcService[]): void;
  /** Over TLS, has new connections use this certificate. */
  useCertificate(certificate: Pick<SecureServerOptions, "cert" | "key">): void;
  /** Accepts no more calls, ends streams, waits for the other calls, and after `graceMs` ends those too. */
  close(graceMs: number): Promise<void>;
}

/** Requests that a client may have in flight on one connection. */
const maxConcurrentStreams = 1_000;

const http2Options = {
  settings: { maxConcurrentStreams, maxHeaderListSize: 16_384 },
  // Megabytes. Node's 10 are too few for so many streams with the largest headers and messages.
  maxSessionMemory: 128,
  ...nodeResetLimit(maxConcurrentStreams),
};

/** Milliseconds for the last statuses to reach their callers before connections are cut. */
const lastStatusesMs = 50;

export function createGrpcServer(options: GrpcServerOptions): GrpcServer {
  const { tls, admission, connections: times = connectionTimes } = options;
  const listener = createHttp2Listener({ ...http2Options, ...tls });
  const stalls = new Stalls(options.stalls ?? stallLimits);
  const shared: Shared = { times, stalls, admission, served: undefined };
  const handshakes = new Handshakes();
  const sockets = new Set<Socket>();
  const sessions = openSessions(listener, { maxConcurrentStreams, maxAgeMs: options.maxConnectionAgeMs });
  let handlers: readonly RpcHandler[] = [];
  let health: HealthService | undefined;
  let closing: Promise<void> | undefined;

  handshakes.watch(listener, options.handshakeMs ?? handshakeMs);
  listener.on("connection", (socket) => keepWhileOpen(sockets, socket));
  listener.on("session", (session: ServerHttp2Session) => new GrpcConnection(session, shared));

  async function close(graceMs: number): Promise<void> {
    const closed = new Promise((resolve) => listener.close(resolve));
    handshakes.cut();
    for (const session of sessions) session.close();
    for (const handler of handlers) handler.drain();
    let end = setTimeout(() => {
      for (const handler of handlers) handler.stopAll();
      end = setTimeout(() => {
        for (const socket of sockets) socket.destroy();
      }, lastStatusesMs);
    }, graceMs);
    await closed;
    clearTimeout(end);
  }

  return {
    async listen(host, port) {
      await once(listener.listen({ host, port }), "listening");
      const address = listener.address();
      return typeof address === "object" && address ? address.port : port;
    },
    serve(services) {
      health = createHealth(services);
      const calls = createRpcHandler({ ...options, services });
      // Kept out of the metrics: a watch that ends with the server would count there as a failure.
      const unseen = { ...options, observer: unobserved, isTraced: false, neverRefused: true };
      const probes = createRpcHandler({ ...unseen, services: [health.service] });
      const all = [...services, health.service];
      const reflection = createRpcHandler({ ...unseen, services: createReflection(all) });
      handlers = [calls, probes, reflection];
      const routes = handlers.flatMap((handler) => handler.routes);
      shared.served = {
        routes: new Map(routes.map((route) => [route.path, route])),
        reflections: new Set(reflection.routes),
        unknown: calls.unknown,
      };
    },
    useCertificate(certificate) {
      if (listener instanceof TlsServer) listener.setSecureContext({ ...tls, ...certificate });
    },
    setServing: (serving, services) => health?.setServing(serving, services),
    close(graceMs) {
      health?.setServing(false);
      closing ??= close(graceMs);
      return closing;
    },
  };
}

const unobserved: RpcObserver = { serves() {}, completed() {} };
