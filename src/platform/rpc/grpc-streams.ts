/** The streams of the gRPC port before they are calls: admitted or refused, and given their time. */
import { constants, type IncomingHttpHeaders, type ServerHttp2Stream } from "node:http2";
import { ErrorKinds, ServiceError } from "../base/errors.ts";
import type { Admission } from "../door/admission.ts";
import { admit } from "../door/door.ts";
import { endAfterRequest } from "../door/early-responses.ts";
import { resetStream } from "../door/resets.ts";
import { type StallLimits, Stalls, stallLimits } from "../door/stalls.ts";
import { withoutQuery } from "../door/targets.ts";
import type { GrpcConnection } from "./grpc-connection.ts";
import type { RpcRoute } from "./handler.ts";
import { Http2Exchange } from "./http-exchange.ts";

export interface GrpcStreamsOptions {
  /** Refuses calls while too many arrive; none are refused unless given. */
  readonly admission?: Admission | undefined;
  /** Times for the clients; the default ones unless given. */
  readonly stalls?: StallLimits | undefined;
}

interface Serving {
  readonly routes: readonly RpcRoute[];
  readonly reflections: readonly RpcRoute[];
  /** For all other paths. */
  readonly unknown: RpcRoute;
}

/** Streams of server reflection that a connection may have at once. A client needs one. */
const maxReflections = 4;
const tooManyReflections = new ServiceError(
  ErrorKinds.tooManyRequests,
  `A connection has at most ${maxReflections} streams of server reflection at once.`,
);

export class GrpcStreams {
  readonly #admission: Admission | undefined;
  readonly #limits: StallLimits;
  readonly #stalls: Stalls;
  #routes: ReadonlyMap<string, RpcRoute> = new Map();
  #reflections: ReadonlySet<RpcRoute> = new Set();
  #unknown: RpcRoute | undefined;

  constructor({ admission, stalls = stallLimits }: GrpcStreamsOptions) {
    this.#admission = admission;
    this.#limits = stalls;
    this.#stalls = new Stalls(stalls);
  }

  /** Until then every stream is refused. */
  serve({ routes, reflections, unknown }: Serving): void {
    this.#routes = new Map([...routes, ...reflections].map((route) => [route.path, route]));
    this.#reflections = new Set(reflections);
    this.#unknown = unknown;
  }

  begin(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, connection: GrpcConnection): void {
    const target = headers[":path"] ?? "";
    const route = this.#routes.get(target) ?? this.#routes.get(withoutQuery(target)) ?? this.#unknown;
    const reflection = route && this.#reflections.has(route);
    if (!route) resetStream(stream, constants.NGHTTP2_REFUSED_STREAM);
    else if (reflection && connection.reflections < maxReflections)
      this.#converse(route, stream, headers, connection);
    else {
      this.#stalls.watchStream(stream);
      const hold = () => {
        if (!stream.readableEnded) endAfterRequest(stream, this.#limits.requestMs);
      };
      const handle = () => route.handleStream(stream, headers);
      const sheddable = reflection ? undefined : route.sheddable;
      if (this.#admission && sheddable && admit(this.#admission, sheddable, stream, handle, hold)) return;
      hold();
      if (reflection) route.refuse(new Http2Exchange(stream, headers), tooManyReflections);
      else if (this.#admission && sheddable) route.refuse(new Http2Exchange(stream, headers));
      else void handle();
    }
  }

  /**
   * A client holds a stream of reflection open for as long as it asks: so there are few of them, and none that is idle
   * or whose responses nobody reads.
   */
  #converse(
    route: RpcRoute,
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    connection: GrpcConnection,
  ): void {
    connection.reflections += 1;
    stream.once("close", () => {
      connection.reflections -= 1;
    });
    this.#stalls.watchStream(stream, true);
    stream.setTimeout(this.#limits.responseMs, () => resetStream(stream, constants.NGHTTP2_CANCEL));
    void route.handleStream(stream, headers);
  }
}
