/** Streams of every protocol: the part of the pipeline that runs them, behind connect-node's router. */
import { create, type DescMessage, type Message, type MessageInitShape } from "@bufbuild/protobuf";
import {
  ConnectError,
  createConnectRouter,
  createContextKey,
  createContextValues,
  type HandlerContext,
} from "@connectrpc/connect";
import {
  compressionGzip,
  universalRequestFromNodeRequest,
  universalResponseToNodeResponse,
} from "@connectrpc/connect-node";
import type { RequestContext } from "../base/request-context.ts";
import type { NodeRequest, NodeResponse } from "../door/responses.ts";
import { ActiveCall, type CallOrigin, type RpcPipeline } from "./call.ts";
import { cancelled } from "./faults.ts";
import { dropLongTimeouts, type MessageLimits } from "./protocols.ts";
import type { StreamingMethod } from "./service.ts";

/** Serves a request of a method, whose context there is already. */
type ServeStream = (request: NodeRequest, response: NodeResponse, context: RequestContext) => void;

/** A request, from its head on. */
interface Served {
  readonly context: RequestContext;
  /** Aborted when the caller has disconnected. */
  connection?: AbortSignal;
  call?: ActiveStream;
}

const servedKey = createContextKey<Served | undefined>(undefined, { description: "served" });

/** @returns a function that serves the method's requests */
export function streamHandler(
  pipeline: RpcPipeline,
  method: StreamingMethod,
  limits: MessageLimits,
): ServeStream {
  const router = createConnectRouter({
    readMaxBytes: limits.request,
    writeMaxBytes: limits.response,
    acceptCompression: [compressionGzip],
    // Responses are not compressed.
    compressMinBytes: Number.MAX_SAFE_INTEGER,
    requestGate: (context) => beginCall(pipeline, method, context),
  });
  if (method.kind === "server_streaming") {
    router.rpc(method.descriptor, (request, context) =>
      callOf(context).responses((call) => method.run(request, call)),
    );
  } else {
    router.rpc(method.descriptor, (requests, context) =>
      callOf(context).responses((call) => method.run(untilFault(requests, call), call)),
    );
  }
  const [handler] = router.handlers;
  if (!handler) throw new Error(`${method.descriptor.toString()} has no handler`);

  const serve = async (request: NodeRequest, response: NodeResponse, served: Served) => {
    dropLongTimeouts(request.headers);
    const values = createContextValues().set(servedKey, served);
    const universal = universalRequestFromNodeRequest(request, response, undefined, values);
    served.connection = universal.signal;
    const body = readBody(request, served);
    await universalResponseToNodeResponse(await handler({ ...universal, body }), response);
  };

  return (request, response, context) => {
    response.setHeader("x-request-id", context.requestId);
    serve(request, response, { context }).catch((thrown: unknown) => {
      // The caller disconnected during the response, or its request has no valid authority.
      context.log.debug({ err: thrown }, "An RPC response could not be sent");
      response.statusCode = 400;
      if (response.headersSent) response.destroy();
      else response.end();
    });
  };
}

/** The body. Reading ends with the call, and its unread rest is discarded, so that the caller gets the response. */
function readBody(request: NodeRequest, served: Served): AsyncIterable<Uint8Array> {
  const chunks: AsyncIterator<Uint8Array> = request.iterator({ destroyOnReturn: false });
  const close = async () => chunks.return?.();
  const drop = () =>
    void close().then(
      () => request.resume(),
      () => undefined,
    );
  return {
    [Symbol.asyncIterator]: () => ({
      async next() {
        try {
          const next = await (served.call?.orStopped(() => chunks.next()) ?? chunks.next());
          if (next.done && wasGivenUp(request)) throw cancelled();
          return next;
        } catch (thrown) {
          // Unless the call has ended, its caller has gone, which is no defect of the method that reads.
          served.call?.stop(cancelled);
          drop();
          throw thrown;
        }
      },
      async return() {
        drop();
        return { done: true, value: undefined };
      },
    }),
  };
}

/** Whether the caller has gone before the end of its request: Node ends the body of a stream that is reset, too. */
function wasGivenUp(request: NodeRequest): boolean {
  return "stream" in request ? request.stream.closed : !request.complete;
}

/** The requests. What is wrong with one of them ends the call with its status, and is no defect of the method. */
async function* untilFault<T>(requests: AsyncIterable<T>, call: ActiveStream): AsyncGenerator<T> {
  try {
    yield* requests;
  } catch (thrown) {
    if (thrown instanceof ConnectError) call.stop(() => thrown);
    throw thrown;
  }
}

/** Runs before the body is read, so that calls with an invalid body are logged and counted too. */
function beginCall(pipeline: RpcPipeline, method: StreamingMethod, context: HandlerContext): void {
  const served = context.values.get(servedKey);
  const { protocolName } = context;
  const origin: CallOrigin = {
    protocol: protocolName === "grpc" || protocolName === "grpc-web" ? protocolName : "connect",
    metadata: (name) => context.requestHeader.get(name) ?? undefined,
    context: served?.context,
  };
  const call = pipeline.begin(new ActiveStream(method, origin, pipeline));
  if (served) served.call = call;
  const { signal } = context;
  const stop = () =>
    call.stop(() => {
      // A closed connection has many different reasons, all of which mean that the caller has disconnected.
      const disconnected = served?.connection?.aborted || !(signal.reason instanceof ConnectError);
      return disconnected ? cancelled() : signal.reason;
    });
  // The signal is also aborted after every call that has ended.
  if (signal.aborted) stop();
  else signal.addEventListener("abort", stop, { once: true });
}

function callOf(context: HandlerContext): ActiveStream {
  const call = context.values.get(servedKey)?.call;
  if (!call) throw new Error("The request gate has not run");
  return call;
}

type Responses = AsyncIterable<MessageInitShape<DescMessage>>;

/** Has no default deadline. That of the caller is enforced by whoever begins the call. */
class ActiveStream extends ActiveCall {
  override readonly isStream = true;
  readonly #output: DescMessage;
  /** Each rejects a promise that the call waits for. */
  readonly #waiting = new Set<(reason: ConnectError) => void>();
  #close: (() => void) | undefined;

  constructor({ descriptor }: StreamingMethod, origin: CallOrigin, pipeline: RpcPipeline) {
    super(descriptor, origin, Number.POSITIVE_INFINITY, pipeline);
    this.#output = descriptor.output;
  }

  /** Runs the method. @throws ConnectError only, which may be shown to the caller */
  async *responses(run: (call: this) => Responses): AsyncGenerator<Message, void, undefined> {
    try {
      const messages = await this.orStopped(async () => run(this)[Symbol.asyncIterator]());
      const close = async () => messages.return?.();
      // The call has ended already, so an error while the method is closed is ignored.
      this.#close = () => void close().catch(() => undefined);
      for (;;) {
        const next = await this.orStopped(() => messages.next());
        if (next.done) break;
        yield create(this.#output, next.value);
      }
      this.succeed();
    } catch (thrown) {
      throw this.fail(thrown);
    } finally {
      // Has an effect only if the reader stopped reading before the end.
      this.stop(cancelled);
    }
  }

  /** Waits for `work`, and rejects when the call is stopped. */
  orStopped<T>(work: () => Promise<T>): Promise<T> {
    if (this.failure) return Promise.reject(this.failure);
    return new Promise<T>((resolve, reject) => {
      this.#waiting.add(reject);
      work()
        .then(resolve, reject)
        .finally(() => this.#waiting.delete(reject));
    });
  }

  protected override interrupted(reason: ConnectError): void {
    for (const reject of this.#waiting) reject(reason);
    this.#close?.();
  }
}
