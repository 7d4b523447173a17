/** Connect, gRPC and gRPC-Web over node:http and node:http2: a route for each method of the services. */
import type { IncomingMessage } from "node:http";
import type {
  Http2ServerRequest,
  Http2ServerResponse,
  IncomingHttpHeaders,
  ServerHttp2Stream,
} from "node:http2";
import type { Prioritized } from "../base/admission.ts";
import type { CorsPolicy } from "../base/cors-policy.ts";
import type { HttpResponse } from "../base/responding.ts";
import type { RpcPipelineOptions } from "./active-calls.ts";
import type { RpcService } from "./service.ts";

/** The path of a method, in both forms in which its requests come. It serves every HTTP method. */
export interface RpcRoute {
  /** `/package.Service/Method` */
  readonly path: string;
  /** Undefined if its requests are never refused: streams, and whatever `neverRefused` is said of. */
  readonly sheddable: Prioritized | undefined;
  /** HTTP/1.1, or HTTP/2 behind Node's compatibility objects. Always responds, or ends the connection; never throws. */
  handle(request: IncomingMessage | Http2ServerRequest, response: HttpResponse | Http2ServerResponse): void;
  /** HTTP/2 by its core API. Always responds, or resets the stream; never throws. */
  handleStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void;
  /** Refuses a request under overload. Nothing of its body has been read. */
  refuse(request: IncomingMessage | Http2ServerRequest, response: HttpResponse | Http2ServerResponse): void;
  refuseStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void;
}

export interface RpcHandlerOptions extends RpcPipelineOptions {
  readonly services: readonly RpcService[];
  /** Longest request message in bytes, before and after decompression; 65,536 unless given. */
  readonly maxMessageBytes?: number;
  /** The policy for pages of other origins; unless given, browsers block their requests. */
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

export type CreateRpcHandler = (options: RpcHandlerOptions) => RpcHandler;
