/**
 * A server with an API that a test can hold back, and clients that show what becomes of a connection.
 * Whatever is started ends with the test that started it.
 */
import { once } from "node:events";
import { Agent, request as httpRequest, type IncomingMessage } from "node:http";
import { type ClientHttp2Session, connect as connectHttp2 } from "node:http2";
import { connect, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { setImmediate as afterReading, setTimeout as elapsed } from "node:timers/promises";
import { onTestFinished } from "vitest";
import type { Route } from "../../src/platform/door/door.ts";
import {
  createHttpServer,
  defaultTimeouts,
  type HttpHandlers,
  type HttpTimeouts,
} from "../../src/platform/http/server.ts";
import { captureLog } from "./captured-log.ts";
import { localhostCertificate } from "./localhost-certificate.ts";

const { logger, lines } = captureLog();

/** What the servers have logged. */
export const serverLog = lines;

/** Answers `/wait` when it is let go, `/fail` never, everything else with method, path and body. */
function api() {
  const { promise: letGo, resolve: release } = Promise.withResolvers<void>();
  const { promise: arrived, resolve: arrive } = Promise.withResolvers<void>();
  async function answer(request: Request): Promise<Response> {
    const { pathname } = new URL(request.url);
    if (pathname === "/fail") throw new Error("inner matter");
    if (pathname === "/stream") {
      const { readable, writable } = new TransformStream<string, string>();
      const writer = writable.getWriter();
      void writer.write("first ");
      arrive();
      void letGo.then(() => writer.write("last")).then(() => writer.close());
      return new Response(readable.pipeThrough(new TextEncoderStream()));
    }
    if (pathname === "/wait") {
      arrive();
      await letGo;
    }
    return new Response(`${request.method} ${pathname} ${await request.text()}`);
  }
  return { answer, arrived, release };
}

interface TestServerOptions extends Partial<HttpTimeouts>, Partial<HttpHandlers> {
  readonly tls?: boolean;
}

/** A server that listens. What is not given is the API above, an RPC method, cleartext, and the default timeouts. */
export async function startServer(options: TestServerOptions = {}) {
  const { answer, arrived, release } = api();
  const { tls = false, fetch = answer, routes = [echo], ...timeouts } = options;
  const server = createHttpServer({
    tls: tls ? localhostCertificate : undefined,
    logger,
    timeouts: { ...defaultTimeouts, ...timeouts },
  });
  server.serve({ fetch, routes });
  onTestFinished(() => server.close(0));
  const port = await server.listen("127.0.0.1", 0);
  return { server, port, arrived, release };
}

const echo: Route = {
  method: undefined,
  path: "/rpc.v1.Service/Method",
  handle: async (request, response) => void response.end(`rpc ${request.url}`),
};

/** One request by node:http, so that the connection's fate can be seen. */
export async function ask(
  port: number,
  path: string,
  agent = new Agent(),
): Promise<IncomingMessage & { body: string }> {
  const request = httpRequest({ port, host: "127.0.0.1", path, agent }).end();
  const [response] = await once(request, "response");
  return Object.assign(response, { body: await text(response) });
}

/** A raw connection, and all that came back on it until it was closed; at the end `error …` if it was reset. */
export function raw(port: number): { socket: Socket; received: Promise<string> } {
  const socket = connect(port, "127.0.0.1").setEncoding("utf8");
  onTestFinished(() => void socket.destroy());
  return { socket, received: everything(socket) };
}

async function everything(socket: Socket): Promise<string> {
  let received = "";
  try {
    for await (const part of socket) received += part;
  } catch (error) {
    received += `error ${error instanceof Error ? error.message : error}`;
  }
  return received;
}

/**
 * Writes a piece every 20 ms until the connection ends. What has come is read right before each piece: a server
 * that has answered and closed resets a client that writes on, and what such a client had not read is lost.
 */
export async function drip(socket: Socket, piece: string): Promise<void> {
  for (;;) {
    await elapsed(20);
    await afterReading();
    if (socket.destroyed || socket.readableEnded) return;
    socket.write(piece);
  }
}

/** An HTTP/2 session over TLS. */
export function session(port: number): ClientHttp2Session {
  const client = connectHttp2(`https://localhost:${port}`, { ca: localhostCertificate.cert });
  onTestFinished(() => client.destroy());
  return client;
}

/** One request on it: GET, or POST where there is a body. */
export async function askHttp2(client: ClientHttp2Session, path: string, body?: string) {
  const stream = client.request({ ":path": path, ":method": body === undefined ? "GET" : "POST" });
  stream.end(body);
  const [headers] = await once(stream, "response");
  return { status: headers[":status"], headers, body: await text(stream) };
}
