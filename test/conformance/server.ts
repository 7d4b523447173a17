/**
 * The server under test, as the suite starts it for each combination of protocol and HTTP version: it reads a
 * ServerCompatRequest from stdin, and writes its address to stdout. Unary calls are served by our handler; streams by
 * connect-node's router, with our options.
 *
 *   node server.ts <descriptors>
 */
import { once } from "node:events";
import { createServer as createHttp1Server } from "node:http";
import {
  createServer as createHttp2Server,
  createSecureServer,
  Http2ServerRequest,
  Http2ServerResponse,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from "node:http2";
import { buffer } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import {
  type DescMethod,
  type FileRegistry,
  fromBinary,
  fromJson,
  type Message,
  toBinary,
  toJson,
} from "@bufbuild/protobuf";
import { createConnectRouter, type HandlerContext } from "@connectrpc/connect";
import {
  compressionGzip,
  universalRequestFromNodeRequest,
  universalResponseToNodeResponse,
} from "@connectrpc/connect-node";
import { pino } from "pino";
import * as v from "valibot";
import { HttpResponse, type NodeRequest, type NodeResponse } from "../../src/platform/door/responses.ts";
import { listening } from "../../src/platform/http/server.ts";
import { createRpcHandler, type RpcHandler, type RpcRoute } from "../../src/platform/rpc/handler.ts";
import type { RpcCall, RpcService } from "../../src/platform/rpc/service.ts";
import { UnaryCall } from "../../src/platform/rpc/unary.ts";
import { loadTypes, messageOf, methodsOf } from "./protos.ts";
import { planFor } from "./service.ts";

const compatRequest = v.object({
  httpVersion: v.optional(v.number(), 0),
  useTls: v.optional(v.boolean(), false),
  messageReceiveLimit: v.optional(v.number(), 0),
  serverCreds: v.optional(v.object({ cert: v.string(), key: v.string() })),
});
const http1 = 1;

const types = loadTypes(process.argv[2] ?? "");
const readPrefixed = (bytes: Buffer) => bytes.subarray(4, 4 + bytes.readUInt32BE(0));
const [input] = await once(process.stdin, "data");
const asked = v.parse(
  compatRequest,
  toJson(
    messageOf(types.binary, "ServerCompatRequest"),
    fromBinary(messageOf(types.binary, "ServerCompatRequest"), readPrefixed(input)),
    { enumAsInteger: true },
  ),
);
const maxMessageBytes = asked.messageReceiveLimit || 16_777_216;
const logger = pino({ level: "silent" });

/** A unary method, which says beside its message what no method of ours says: headers, trailers, and its very error. */
async function unary(method: DescMethod, request: Message, call: RpcCall): Promise<Message> {
  if (!(call instanceof UnaryCall)) throw new TypeError("A unary method has a unary call");
  const { timeoutMs } = call;
  const headers = Object.entries(call.headers).filter(([name]) => !name.startsWith(":"));
  const plan = planFor(types.binary, method, request, { headers, timeoutMs });
  call.responseHeaders = plan.headers;
  call.responseTrailers = plan.trailers;
  await delay(plan.delayMs);
  const { error } = plan;
  if (error) call.stop(() => error);
  return plan.message();
}

function handlerOf(registry: FileRegistry): RpcHandler {
  const { descriptor, unary: served } = methodsOf(registry);
  const methods = served
    .filter(({ name }) => name !== "Unimplemented")
    .map((method) => ({
      kind: method.methodKind,
      maxMessageBytes: undefined,
      refusesUnknownMembers: false,
      admits: undefined,
      descriptor: method,
      run: (request: Message, call: RpcCall) => unary(method, request, call),
    }));
  const service: RpcService = { descriptor, priority: "low", methods };
  const observer = { serves: () => undefined, completed: () => undefined };
  return createRpcHandler({ services: [service], logger, observer, maxMessageBytes });
}

const handlers = { binary: handlerOf(types.binary), json: handlerOf(types.json) };
const router = createConnectRouter({
  jsonOptions: { registry: types.binary },
  readMaxBytes: maxMessageBytes,
  acceptCompression: [compressionGzip],
  compressMinBytes: Number.MAX_SAFE_INTEGER,
});
for (const method of methodsOf(types.binary).streaming)
  router.rpc(method, (request, context) => stream(method, request, context));

function serveStream(request: NodeRequest, response: NodeResponse): void {
  const [handler] = router.handlers;
  async function serve(): Promise<void> {
    const universal = universalRequestFromNodeRequest(request, response, undefined, undefined);
    // To its end, or a connection of HTTP/1.1 would be closed behind the response.
    const body = ReadableStream.from([new Uint8Array(await buffer(request))]);
    if (handler) await universalResponseToNodeResponse(await handler({ ...universal, body }), response);
  }
  // The caller has gone.
  serve().catch(() => response.destroy());
}

async function* stream(method: DescMethod, request: Message, context: HandlerContext) {
  const caller = { headers: context.requestHeader, timeoutMs: context.timeoutMs() };
  const plan = planFor(types.binary, method, request, caller);
  append(context.responseHeader, plan.headers);
  append(context.responseTrailer, plan.trailers);
  for (let index = 0; index < plan.messages; index += 1) {
    await delay(plan.delayMs, undefined, { signal: context.signal }).catch(() =>
      context.signal.throwIfAborted(),
    );
    yield plan.message(index);
  }
  if (plan.error) throw plan.error;
}

function append(to: Headers, fields: Readonly<Record<string, readonly string[]>>): void {
  for (const [name, values] of Object.entries(fields)) for (const value of values) to.append(name, value);
}

/** Undefined: a stream. */
function routeOf(path: string, { "content-type": type }: IncomingHttpHeaders): RpcRoute | undefined {
  if (path.endsWith("/ServerStream")) return undefined;
  const { routes, unknown } = handlers[type?.includes("json") ? "json" : "binary"];
  return routes.find((route) => route.path === path) ?? unknown;
}

function handle(request: NodeRequest, response: NodeResponse) {
  const route = routeOf(request.url ?? "", request.headers);
  if (route) void route.handle(request, response);
  else serveStream(request, response);
}

function handleStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders) {
  const route = routeOf(headers[":path"] ?? "", headers);
  if (route) void route.handleStream(stream, headers);
  else serveStream(new Http2ServerRequest(stream, headers, {}, []), new Http2ServerResponse(stream));
}

/**
 * Longer than the suite runs: its client reuses connections, and Node would close one that is idle for five seconds, over
 * TLS without its alert, just as a request is on the way ("unexpected EOF").
 */
const http1Options = { keepAliveTimeout: 600_000 };
const ServerResponse = HttpResponse;

function createServer() {
  const { serverCreds } = asked;
  if (asked.useTls && serverCreds) {
    const [cert, key] = [serverCreds.cert, serverCreds.key].map((text) => Buffer.from(text, "base64"));
    return createSecureServer(
      { cert, key, allowHTTP1: true, Http1ServerResponse: ServerResponse, ...http1Options },
      handle,
    );
  }
  return asked.httpVersion === http1
    ? createHttp1Server({ ...http1Options, ServerResponse }, handle)
    : createHttp2Server().on("stream", handleStream);
}

const port = await listening(createServer(), "127.0.0.1", 0);
const schema = messageOf(types.binary, "ServerCompatResponse");
const response = toBinary(
  schema,
  fromJson(schema, {
    host: "127.0.0.1",
    port,
    ...(asked.useTls && { pemCert: asked.serverCreds?.cert ?? "" }),
  }),
);
const length = Buffer.alloc(4);
length.writeUInt32BE(response.length);
process.stdout.write(Buffer.concat([length, response]));
