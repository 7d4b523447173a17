/**
 * Native gRPC on a port of its own, by @grpc/grpc-js with the codecs of protobuf-es. It serves grpc.health.v1 and
 * server reflection besides the services.
 */
import { logVerbosity, Server, ServerCredentials, setLogVerbosity } from "@grpc/grpc-js";
import { bracketed } from "../base/addresses.ts";
import type { Admission } from "../door/admission.ts";
import type { StallLimits } from "../door/stalls.ts";
import { maxResponseBytes, RpcPipeline, type RpcPipelineOptions } from "./active-calls.ts";
import { addService } from "./grpc-handlers.ts";
import { createHealth, type HealthService } from "./grpc-health.ts";
import { addReflection } from "./grpc-reflection.ts";
import { GrpcStreams } from "./grpc-streams.ts";
import { releaseClosedStreams } from "./release-closed-streams.ts";
import type { RpcService } from "./service.ts";

export interface GrpcServerOptions extends RpcPipelineOptions {
  /** PEM. Cleartext HTTP/2 if absent. */
  readonly tls?: { readonly cert: string | Buffer; readonly key: string | Buffer } | undefined;
  /** Longest request message, before and after decompression. */
  readonly maxMessageBytes?: number;
  /** Refuses calls while too many arrive; none are refused unless given. */
  readonly admission?: Admission | undefined;
  /** Times for the clients; the default ones unless given. */
  readonly stalls?: StallLimits | undefined;
  /** The time of a handshake, in milliseconds; ten seconds unless given. */
  readonly handshakeMs?: number | undefined;
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
  /** Accepts no more calls, ends streams, waits for the other calls, and after `graceMs` ends those too. */
  close(graceMs: number): Promise<void>;
}

/** Milliseconds for the last statuses to reach their callers before connections are cut. */
const lastStatusesMs = 50;

export function createGrpcServer(options: GrpcServerOptions): GrpcServer {
  // The library's own log goes to stderr and quotes metadata values that it cannot parse, such as credentials.
  // Statuses and thrown errors contain everything that is needed.
  setLogVerbosity(logVerbosity.NONE);
  releaseClosedStreams();
  const pipeline = new RpcPipeline(options);
  const streams = new GrpcStreams(options);
  const server = new Server({
    "grpc.max_receive_message_length": options.maxMessageBytes ?? 65_536,
    "grpc.max_send_message_length": maxResponseBytes,
    "grpc.max_concurrent_streams": 1_000,
    // A peer that vanished is detected within 80 seconds; an idle connection is closed, and the peer can reconnect.
    "grpc.keepalive_time_ms": 60_000,
    "grpc.keepalive_timeout_ms": 20_000,
    "grpc.max_connection_idle_ms": 600_000,
    // channelz costs time on every call, and nothing here uses it.
    "grpc.enable_channelz": 0,
  });
  // Probes are kept out of the metrics, and a watch that ends with the server would count there as a failure.
  const probes = new RpcPipeline({
    ...options,
    observer: { serves() {}, completed() {} },
    isTraced: false,
  });
  let health: HealthService | undefined;
  let endReflection = (): void => undefined;
  let closing: Promise<void> | undefined;

  return {
    async listen(host, port) {
      const bound = await listen(server, host, port, credentials(options.tls));
      streams.wrap(server);
      return bound;
    },
    serve(services) {
      streams.guard(services);
      health = createHealth(services);
      for (const service of services) addService(server, pipeline, service);
      addService(server, probes, health.service);
      endReflection = addReflection(server, [...services, health.service]);
    },
    setServing: (serving, services) => health?.setServing(serving, services),
    close(graceMs) {
      health?.setServing(false);
      closing ??= close(server, graceMs, [pipeline, probes], () => {
        endReflection();
        streams.handshakes.cut();
      });
      return closing;
    },
  };
}

function credentials(tls: GrpcServerOptions["tls"]): ServerCredentials {
  if (!tls) return ServerCredentials.createInsecure();
  return ServerCredentials.createSsl(null, [
    { cert_chain: Buffer.from(tls.cert), private_key: Buffer.from(tls.key) },
  ]);
}

function listen(server: Server, host: string, port: number, secured: ServerCredentials): Promise<number> {
  const address = `${bracketed(host)}:${port}`;
  return new Promise((resolve, reject) => {
    server.bindAsync(address, secured, (error, bound) =>
      error ? reject(listenError(error, port)) : resolve(bound),
    );
  });
}

/** The library gives the reason only in its message. The returned error has the code and the port, like Node's own. */
function listenError(error: Error, port: number): Error {
  const code = /\blisten (E[A-Z]+)\b/.exec(error.message)?.[1];
  return code ? Object.assign(new Error(error.message, { cause: error }), { code, port }) : error;
}

async function close(
  server: Server,
  graceMs: number,
  pipelines: readonly RpcPipeline[],
  endIdle: () => void,
): Promise<void> {
  const finished = new Promise<boolean>((resolve) => server.tryShutdown(() => resolve(true)));
  endIdle();
  for (const pipeline of pipelines) pipeline.drain();
  if (await isDoneWithin(graceMs, finished)) return;
  for (const pipeline of pipelines) pipeline.stopAll();
  await isDoneWithin(lastStatusesMs, finished);
  server.forceShutdown();
}

/**
 * Whether `done` resolved within the time. It is exact, and keeps the process alive, unlike `withTimeout` of
 * deadlines.ts.
 */
async function isDoneWithin(milliseconds: number, done: Promise<boolean>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(resolve, milliseconds, false);
  });
  const hasFinished = await Promise.race([done, late]);
  clearTimeout(timer);
  return hasFinished;
}
