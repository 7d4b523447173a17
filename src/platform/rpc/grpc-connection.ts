/**
 * A connection of the gRPC port: asked whether it lives, closed when it is idle; and its streams before they are calls,
 * admitted or refused, and given their time.
 */
import {
  constants,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import { ErrorKinds, ServiceError } from "../base/errors.ts";
import type { Admission } from "../door/admission.ts";
import { admit } from "../door/door.ts";
import { endAfterRequest } from "../door/early-responses.ts";
import { cutSession } from "../door/handshakes.ts";
import { resetStream, unlessReset } from "../door/resets.ts";
import type { Stalls } from "../door/stalls.ts";
import { withoutQuery } from "../door/targets.ts";
import type { RpcRoute } from "./handler.ts";
import { Http2Exchange } from "./http-exchange.ts";

/** Times of a connection, in milliseconds. */
export interface ConnectionTimes {
  /** Between two PINGs. */
  readonly pingMs: number;
  /** For the acknowledgement of a PING, and of this server's settings. */
  readonly ackMs: number;
  /** Without a stream, until the connection is closed by GOAWAY. */
  readonly idleMs: number;
}

/** A client that vanished is noticed within 80 seconds. */
export const connectionTimes: ConnectionTimes = { pingMs: 60_000, ackMs: 20_000, idleMs: 600_000 };

/** What the connections of a server share. */
export interface Shared {
  readonly times: ConnectionTimes;
  readonly stalls: Stalls;
  /** Refuses calls while too many arrive; none are refused if absent. */
  readonly admission: Admission | undefined;
  /** Until it is set, every stream is refused. */
  served: Served | undefined;
}

interface Served {
  /** By path. */
  readonly routes: ReadonlyMap<string, RpcRoute>;
  /** Those of them of server reflection. */
  readonly reflections: ReadonlySet<RpcRoute>;
  /** For all other paths. */
  readonly unknown: RpcRoute;
}

/** Streams of server reflection that a connection may have at once: their responses, if unread, are large. */
const maxReflections = 4;
const tooManyReflections = new ServiceError(
  ErrorKinds.tooManyRequests,
  `A connection has at most ${maxReflections} streams of server reflection at once.`,
);

export class GrpcConnection {
  readonly #session: ServerHttp2Session;
  readonly #shared: Shared;
  readonly #idle: NodeJS.Timeout;
  #open = 0;
  #reflections = 0;

  constructor(session: ServerHttp2Session, shared: Shared) {
    const { pingMs, ackMs, idleMs } = shared.times;
    this.#session = session;
    this.#shared = shared;
    this.#idle = setTimeout(() => this.#open === 0 && session.close(), idleMs);
    // Until the client has acknowledged the settings, Node does not hold it to them.
    const settings = setTimeout(() => session.pendingSettingsAck && cutSession(session), ackMs);
    const timers = [this.#idle, settings, setInterval(() => this.#ping(ackMs), pingMs)];
    for (const timer of timers) timer.unref();
    session.once("close", () => {
      for (const timer of timers) clearTimeout(timer);
    });
    session.on("stream", (stream, headers) => {
      this.#count(stream);
      unlessReset(stream, () => this.#begin(stream, headers));
    });
  }

  /** Counts a stream until it is closed, and then holds nothing of its call. */
  #count(stream: ServerHttp2Stream): void {
    this.#open += 1;
    stream.on("close", () => {
      this.#open -= 1;
      if (this.#open === 0) this.#idle.refresh();
      // Node's Map of open streams keeps later ones alive, as Slots does not (base/deadlines.ts). The other
      // listeners of `close` are still called.
      stream.removeAllListeners("removeListener").removeAllListeners();
    });
  }

  #ping(ackMs: number): void {
    const session = this.#session;
    // What is left of a session that has ended is what its client does not read.
    if (session.destroyed) {
      cutSession(session);
      return;
    }
    let isAlive = false;
    // After a pause of this process, what has arrived meanwhile is read first.
    const late = setTimeout(() => setImmediate(() => isAlive || cutSession(session)), ackMs).unref();
    session.ping(() => {
      isAlive = true;
      clearTimeout(late);
    });
  }

  #begin(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    const { stalls, admission, served } = this.#shared;
    if (!served) {
      resetStream(stream, constants.NGHTTP2_REFUSED_STREAM);
      return;
    }
    const target = headers[":path"] ?? "";
    const route = served.routes.get(target) ?? served.routes.get(withoutQuery(target)) ?? served.unknown;
    const { sheddable } = route;
    const isReflection = served.reflections.has(route);
    const handle = () => route.handleStream(stream, headers);
    stalls.watch(stream);
    if (isReflection && this.#reflections < maxReflections) {
      this.#reflections += 1;
      stream.once("close", () => {
        this.#reflections -= 1;
      });
      void handle();
      return;
    }
    const hold = () => {
      if (!stream.readableEnded) endAfterRequest(stream, stalls.limits.requestMs);
    };
    if (admission && sheddable && admit(admission, sheddable, stream, handle, hold)) return;
    hold();
    if (isReflection) route.refuse(new Http2Exchange(stream, headers), tooManyReflections);
    else if (admission && sheddable) route.refuse(new Http2Exchange(stream, headers));
    else void handle();
  }
}
