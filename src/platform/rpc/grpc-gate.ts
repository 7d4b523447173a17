/**
 * Refuses gRPC calls before @grpc/grpc-js makes a call of their stream, which costs several times as much as the
 * refusal. The library has no place for that: its interceptors run when all of it has been made. So the listeners of
 * its HTTP/2 servers for streams are wrapped.
 */
import type { IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { Server as NetServer } from "node:net";
import type { Server } from "@grpc/grpc-js";
import type { Logger } from "pino";
import { type Admission, overloaded, type Prioritized } from "../base/admission.ts";
import { RequestContext } from "../base/request-context.ts";
import { connectError } from "./call.ts";
import { prioritizedMethods, type RpcService } from "./service.ts";

/** Guards the unary methods of services on one server. */
export class GrpcGate {
  readonly #admission: Admission;
  readonly #logger: Logger;
  #methods = new Map<string, Prioritized>();

  constructor(admission: Admission, logger: Logger) {
    this.#admission = admission;
    this.#logger = logger;
  }

  /** All other calls, such as those of health, are never refused. */
  guard(services: readonly RpcService[]): void {
    this.#methods = prioritizedMethods(services);
  }

  /** Wraps the listeners of a server that listens. Call it once. */
  wrap(server: Server): void {
    for (const http2Server of http2ServersOf(server)) {
      const listeners = http2Server.listeners("stream");
      http2Server.removeAllListeners("stream");
      http2Server.on("stream", (...event: [ServerHttp2Stream, IncomingHttpHeaders, ...unknown[]]) => {
        const [stream, headers] = event;
        if (!this.#admits(stream, headers)) return;
        for (const listener of listeners) Reflect.apply(listener, http2Server, event);
      });
    }
  }

  #admits(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): boolean {
    const method = this.#methods.get(headers[":path"] ?? "");
    if (!method) return true;
    const entered = this.#admission.enter(method);
    if (entered === undefined) this.#refuse(stream, headers);
    else stream.once("close", () => this.#admission.leave(method, entered));
    return entered !== undefined;
  }

  /** Responds with trailers only, as the protocol has it. Node discards what nobody reads of the stream. */
  #refuse(stream: ServerHttp2Stream, { "x-request-id": id }: IncomingHttpHeaders): void {
    const { requestId } = new RequestContext(this.#logger, typeof id === "string" ? id : undefined);
    // The caller may be gone.
    stream.on("error", () => undefined);
    stream.respond({ ...refusal, "x-request-id": requestId }, { endStream: true });
  }
}

const { code, rawMessage, metadata } = connectError(overloaded);
const refusal = {
  ":status": 200,
  "content-type": "application/grpc+proto",
  "grpc-status": `${code}`,
  "grpc-message": encodeURIComponent(rawMessage),
  ...Object.fromEntries(metadata),
};

/** The HTTP/2 servers of the library, a private member. @throws if there are none */
function http2ServersOf(server: Server): NetServer[] {
  const servers: unknown = Reflect.get(server, "http2Servers");
  const found = servers instanceof Map ? [...servers.keys()].filter((key) => key instanceof NetServer) : [];
  if (found.length === 0) throw new Error("@grpc/grpc-js has no HTTP/2 server where it is expected");
  return found;
}
