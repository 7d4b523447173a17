/**
 * The HTTP/2 streams below @grpc/grpc-js. What is refused is refused before the library makes a call of a stream, which
 * costs several times as much as the refusal; what was reset, or does not get on, is ended here. The library has no place
 * for that: its interceptors run when all of a call has been made. So the listeners of its servers are wrapped.
 */
import type { IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { Server as NetServer } from "node:net";
import { Code, ConnectError } from "@connectrpc/connect";
import type { Server } from "@grpc/grpc-js";
import type { Logger } from "pino";
import { type Admission, overloaded, type Prioritized } from "../base/admission.ts";
import { endAfterRequest } from "../base/early-responses.ts";
import { RequestContext } from "../base/request-context.ts";
import { unlessReset } from "../base/resets.ts";
import { type StallLimits, Stalls, stallLimits } from "../base/stalls.ts";
import { connectError } from "./call.ts";
import { errorResponse } from "./connect-responses.ts";
import { prioritizedMethods, type RpcService } from "./service.ts";

interface Options {
  readonly logger: Logger;
  /** None are refused unless given. */
  readonly admission?: Admission | undefined;
  readonly stalls?: StallLimits | undefined;
}

/** What becomes of the streams of one server before they are calls. */
export class GrpcStreams {
  readonly #logger: Logger;
  readonly #admission: Admission | undefined;
  readonly #stalls: Stalls;
  #methods = new Map<string, Prioritized>();

  constructor({ logger, admission, stalls = stallLimits }: Options) {
    this.#logger = logger;
    this.#admission = admission;
    this.#stalls = new Stalls(stalls);
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
        const begin = () => {
          const hasEnded = stream.readableEnded;
          // Reflection holds its streams open.
          if (!headers[":path"]?.startsWith("/grpc.reflection.")) {
            this.#stalls.watchStream(stream);
            endAfterRequest(stream);
          }
          if (!isGrpc(headers)) return this.#refuseProtocol(stream, headers);
          if (!this.#admits(stream, headers)) return;
          for (const listener of listeners) Reflect.apply(listener, http2Server, event);
          // Of a stream without a message, Node has said that it has ended before the library could hear it.
          if (hasEnded) stream.emit("end");
        };
        unlessReset(stream, begin);
      });
    }
  }

  #admits(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): boolean {
    const method = this.#methods.get(headers[":path"] ?? "");
    if (!method || !this.#admission) return true;
    const admission = this.#admission;
    const admitted = admission.enter(method, {
      isComplete: () => stream.readableEnded,
      onComplete: (received) => stream.once("end", () => !stream.closed && received()),
    });
    if (admitted) stream.once("close", () => admission.leave(admitted));
    else this.#refuse(stream, headers);
    return admitted !== undefined;
  }

  /** Responds with trailers only, as the protocol has it. */
  #refuse(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    stream.respond({ ...refusal, ...this.#requestId(headers) }, { endStream: true });
  }

  /** The library would answer a bare 415. What speaks another of our protocols is at the wrong port, and is told so. */
  #refuseProtocol(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    const { "content-type": contentType, ":method": method } = headers;
    const { status, headers: fields, body } = errorResponse({ contentType, method }, otherPort, 415);
    stream.respond({ ":status": status, ...fields, ...this.#requestId(headers) });
    stream.end(body);
  }

  #requestId({ "x-request-id": id }: IncomingHttpHeaders): { readonly "x-request-id": string } {
    const { requestId } = new RequestContext(this.#logger, typeof id === "string" ? id : undefined);
    return { "x-request-id": requestId };
  }
}

/** `application/grpc` with any message format, and nothing like `application/grpc-web`. */
function isGrpc({ "content-type": type = "" }: IncomingHttpHeaders): boolean {
  return /^application\/grpc(?:[+;]|$)/i.test(type);
}

const otherPort = new ConnectError(
  "This port speaks gRPC. Connect and gRPC-Web are spoken on the port of the HTTP APIs, which is that of SERVER_PORT.",
  Code.Unimplemented,
);

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
