/**
 * The HTTP/2 streams below @grpc/grpc-js. What is refused is refused before the library makes a call of a stream, which
 * costs several times as much as the refusal; what was reset, or does not get on, is ended here. The library has no
 * place for that: its interceptors run when all of a call has been made. So the listeners of its servers are wrapped.
 */
import {
  constants,
  type Http2Session,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  type ServerHttp2Stream,
} from "node:http2";
import { Server as NetServer } from "node:net";
import { Code, ConnectError } from "@connectrpc/connect";
import type { Server } from "@grpc/grpc-js";
import type { Logger } from "pino";
import { overloaded } from "../base/errors.ts";
import type { Prioritized } from "../base/priority.ts";
import { RequestContext } from "../base/request-context.ts";
import type { Admission } from "../door/admission.ts";
import { endAfterRequest } from "../door/early-responses.ts";
import { Handshakes, handshakeMs } from "../door/handshakes.ts";
import { unlessReset } from "../door/resets.ts";
import { onceResponding } from "../door/responses.ts";
import { type StallLimits, Stalls, stallLimits } from "../door/stalls.ts";
import { connectError } from "./call.ts";
import { errorResponse } from "./connect-responses.ts";
import { prioritizedMethods, type RpcService } from "./service.ts";
import { clampTimeout } from "./timeouts.ts";

interface Options {
  readonly logger: Logger;
  /** Absent: no streams are refused. */
  readonly admission?: Admission | undefined;
  readonly stalls?: StallLimits | undefined;
  readonly handshakeMs?: number | undefined;
}

/** Streams of server reflection that a connection may have at once. A client needs one. */
const maxReflectionStreams = 4;

/** The streams of one server, before they become calls. */
export class GrpcStreams {
  readonly handshakes = new Handshakes();
  readonly #handshakeMs: number;
  readonly #logger: Logger;
  readonly #admission: Admission | undefined;
  readonly #stalls: Stalls;
  readonly #limits: StallLimits;
  readonly #reflecting = new WeakMap<Http2Session, number>();
  #methods = new Map<string, Prioritized>();

  constructor({ logger, admission, stalls = stallLimits, handshakeMs: limitMs = handshakeMs }: Options) {
    this.#limits = stalls;
    this.#handshakeMs = limitMs;
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
      this.handshakes.watch(http2Server, this.#handshakeMs);
      const listeners = http2Server.listeners("stream");
      http2Server.removeAllListeners("stream");
      http2Server.on("stream", (...event: [ServerHttp2Stream, IncomingHttpHeaders, ...unknown[]]) => {
        const [stream, headers] = event;
        clampTimeout(headers);
        const begin = () => {
          // Of a stream without a message, Node has said that it has ended before the library could hear it.
          const hasEnded = stream.readableEnded;
          for (const listener of listeners) Reflect.apply(listener, http2Server, event);
          if (hasEnded) stream.emit("end");
        };
        unlessReset(stream, () => this.#pass(stream, headers, begin));
      });
    }
  }

  /** Calls `begin` for a stream that the library is to get. Any other has been responded to or closed. */
  #pass(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, begin: () => void): void {
    if (headers[":path"]?.startsWith("/grpc.reflection.")) {
      if (this.#beginsReflection(stream, headers)) begin();
      return;
    }
    this.#bound(stream);
    if (isGrpc(headers)) this.#admit(stream, headers, begin);
    else this.#refuseProtocol(stream, headers);
  }

  /** Gives the request its time. */
  #bound(stream: ServerHttp2Stream): void {
    this.#stalls.watchStream(stream);
    endAfterRequest(stream, this.#limits.requestMs);
  }

  #admit(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, begin: () => void): void {
    const method = this.#methods.get(headers[":path"] ?? "");
    const admission = this.#admission;
    if (!method || !admission) {
      begin();
      return;
    }
    const admitted = admission.enter(method, {
      isComplete: () => stream.readableEnded,
      onComplete: (received) => stream.once("end", () => !stream.closed && received()),
    });
    if (!admitted) {
      this.#refuse(stream, headers);
      return;
    }
    onceResponding(stream, () => admission.respond(admitted));
    stream.once("close", () => admission.leave(admitted));
    admission.start(admitted, begin);
  }

  /**
   * A client holds a stream of reflection open for as long as it asks: so there are few of them, and none that is idle
   * or whose responses nobody reads.
   */
  #beginsReflection(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): boolean {
    const { session } = stream;
    const open = session ? (this.#reflecting.get(session) ?? 0) : 0;
    if (!session || !isGrpc(headers) || open >= maxReflectionStreams) {
      this.#bound(stream);
      if (isGrpc(headers)) this.#refuse(stream, headers, tooManyReflections);
      else this.#refuseProtocol(stream, headers);
      return false;
    }
    this.#reflecting.set(session, open + 1);
    stream.once("close", () => this.#reflecting.set(session, (this.#reflecting.get(session) ?? 1) - 1));
    this.#stalls.watchStream(stream, true);
    stream.setTimeout(this.#limits.responseMs, () => stream.close(constants.NGHTTP2_CANCEL));
    return true;
  }

  /** Responds with trailers only, as the protocol has it. */
  #refuse(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, trailers = refusal): void {
    stream.respond({ ...trailers, ...this.#requestId(headers) }, { endStream: true });
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

const refusal = trailersOf(connectError(overloaded));
const tooManyReflections = trailersOf(
  new ConnectError(
    `A connection has at most ${maxReflectionStreams} streams of server reflection at once.`,
    Code.ResourceExhausted,
  ),
);

function trailersOf({ code, rawMessage, metadata }: ConnectError): OutgoingHttpHeaders {
  return {
    ":status": 200,
    "content-type": "application/grpc+proto",
    "grpc-status": `${code}`,
    "grpc-message": encodeURIComponent(rawMessage),
    ...Object.fromEntries(metadata),
  };
}

/** The HTTP/2 servers of the library, a private member. @throws if there are none */
function http2ServersOf(server: Server): NetServer[] {
  const servers: unknown = Reflect.get(server, "http2Servers");
  const found = servers instanceof Map ? [...servers.keys()].filter((key) => key instanceof NetServer) : [];
  if (found.length === 0) throw new Error("@grpc/grpc-js has no HTTP/2 server where it is expected");
  return found;
}
