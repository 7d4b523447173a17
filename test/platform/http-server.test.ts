/** Connections: what they may take, what is answered to them, and how they end without losing a request. */
import { once } from "node:events";
import { Agent, request as httpRequest, type IncomingMessage } from "node:http";
import { type ClientHttp2Session, connect as connectHttp2, constants } from "node:http2";
import { request as httpsRequest } from "node:https";
import { connect, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { setTimeout as elapsed } from "node:timers/promises";
import { connect as connectTls } from "node:tls";
import { afterEach, describe, expect, it, onTestFinished } from "vitest";
import { createHttpServer, defaultTimeouts, type HttpServer } from "../../src/platform/http-server.ts";
import { captureLog } from "../support/captured-log.ts";
import { localhostCertificate } from "../support/localhost-certificate.ts";

const { logger, lines } = captureLog();
const servers: HttpServer[] = [];
afterEach(() => Promise.all(servers.splice(0).map((server) => server.close(0))));

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

async function start(
  options: { tls?: boolean; headersMs?: number; requestMs?: number; keepAliveMs?: number } = {},
) {
  const { tls = false, ...timeouts } = options;
  const { answer, arrived, release } = api();
  const server = createHttpServer({
    fetch: answer,
    rpc: {
      matches: (path) => path === "/rpc.v1.Service/Method",
      handle: (request, response) => void response.end(`rpc ${request.url}`),
    },
    tls: tls ? localhostCertificate : undefined,
    logger,
    timeouts: { ...defaultTimeouts, ...timeouts },
  });
  servers.push(server);
  const port = await server.listen("127.0.0.1", 0);
  return { server, port, arrived, release };
}

/** One request by node:http, so that the connection's fate can be seen. */
async function ask(
  port: number,
  path: string,
  agent: Agent | false = false,
): Promise<IncomingMessage & { body: string }> {
  const request = httpRequest({ port, host: "127.0.0.1", path, agent: agent || new Agent() }).end();
  const [response] = await once(request, "response");
  return Object.assign(response, { body: await text(response) });
}

/** A raw connection, and all that came back on it until it was closed. */
function raw(port: number): { socket: Socket; received: Promise<string> } {
  const socket = connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  return { socket, received: text(socket).catch((error: Error) => `error ${error.message}`) };
}

function session(port: number): ClientHttp2Session {
  const client = connectHttp2(`https://localhost:${port}`, { ca: localhostCertificate.cert });
  onTestFinished(() => client.destroy());
  return client;
}

async function askHttp2(client: ClientHttp2Session, path: string, body?: string) {
  const stream = client.request({ ":path": path, ":method": body === undefined ? "GET" : "POST" });
  stream.end(body);
  const [headers] = await once(stream, "response");
  return { status: headers[":status"], headers, body: await text(stream) };
}

describe("dispatch", () => {
  it("gives RPC paths to RPC, whatever the query, and the rest to the APIs", async () => {
    const { port } = await start();
    const bodies = ["/rpc.v1.Service/Method?a=/x", "/rpc.v1.Service/Methods", "/a?b=/rpc.v1.Service/Method"];
    expect(await Promise.all(bodies.map(async (path) => (await ask(port, path)).body))).toEqual([
      "rpc /rpc.v1.Service/Method?a=/x",
      "GET /rpc.v1.Service/Methods ",
      "GET /a ",
    ]);
  });

  it("answers a request whose target or Host is not valid 400", async () => {
    const { port } = await start();
    const { socket, received } = raw(port);
    socket.write("GET /a HTTP/1.1\r\nHost: a b/c\r\nConnection: close\r\n\r\n");
    expect(await received).toMatch(
      /^HTTP\/1\.1 400 Bad Request\r\n[\s\S]*application\/problem\+json[\s\S]*"invalid_request"/,
    );
  });

  it("answers what the APIs throw 500, without the cause, and logs it under the id that was answered", async () => {
    const { port } = await start();
    const response = await ask(port, "/fail");
    expect(response.statusCode).toBe(500);
    expect(response.body).not.toContain("inner matter");
    const { requestId } = JSON.parse(response.body);
    expect(response.headers["x-request-id"]).toBe(requestId);
    expect(lines()).toContainEqual(
      expect.objectContaining({ requestId, err: expect.objectContaining({ message: "inner matter" }) }),
    );
  });
});

describe("what cannot be handled does not end the process", () => {
  it.each([
    ["an invalid URL in RPC, 400", () => new URL("/rpc", "http://a b/c"), 400],
    ["a defect in RPC, 500", () => JSON.parse("inner matter"), 500],
  ])("%s", async (_what, fail, status) => {
    const server = createHttpServer({
      fetch: () => new Response("alive"),
      rpc: { matches: (path) => path === "/rpc", handle: () => void fail() },
      logger,
    });
    servers.push(server);
    const port = await server.listen("127.0.0.1", 0);
    const response = await ask(port, "/rpc");
    expect(response.statusCode).toBe(status);
    expect(JSON.parse(response.body)).toMatchObject({ status });
    expect((await ask(port, "/")).body).toBe("alive");
  });

  it("a header that cannot be written, 500", async () => {
    const fetch = () => new Response("x", { headers: { "x-a": "\u0001" } });
    const server = createHttpServer({ fetch, rpc: undefined, logger });
    servers.push(server);
    const port = await server.listen("127.0.0.1", 0);
    const response = await ask(port, "/");
    expect(response.statusCode).toBe(500);
    expect(JSON.parse(response.body)).toMatchObject({ code: "internal_error" });
  });
});

describe("a client that sends nonsense or takes too long", () => {
  it.each([
    ["no HTTP", "hello\r\n\r\n", "HTTP/1.1 400 Bad Request"],
    ["no Host", "GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request"],
    [
      "two lengths",
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
      "HTTP/1.1 400 Bad Request",
    ],
    [
      "huge headers",
      `GET / HTTP/1.1\r\nHost: a\r\nX: ${"x".repeat(20_000)}\r\n\r\n`,
      "HTTP/1.1 431 Request Header Fields Too Large",
    ],
  ])("%s is answered tersely and the connection closed", async (_what, message, status) => {
    const { port } = await start();
    const { socket, received } = raw(port);
    socket.write(message);
    const [head = "", body] = (await received).split("\r\n\r\n");
    expect(head.split("\r\n")[0]).toBe(status);
    // Nothing, or nothing in chunks.
    expect(["", "0"]).toContain(body);
  });

  it.each([
    ["nothing at all", ""],
    ["headers by drips", "GET / HTTP/1.1\r\nHost: a\r\n"],
  ])("%s: 408 after the headers timeout", async (_what, message) => {
    const { port } = await start({ headersMs: 150, requestMs: 10_000 });
    const { socket, received } = raw(port);
    const drips = setInterval(() => message && !socket.destroyed && socket.write("X: y\r\n"), 20);
    socket.write(message);
    expect(await received).toMatch(/^HTTP\/1\.1 408 /);
    clearInterval(drips);
  });

  it("a body by drips: 408 after the request timeout", async () => {
    const { port } = await start({ headersMs: 100, requestMs: 300 });
    const { socket, received } = raw(port);
    socket.write("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
    const drips = setInterval(() => !socket.destroyed && socket.write("x"), 20);
    expect(await received).toMatch(/^HTTP\/1\.1 408 /);
    clearInterval(drips);
  });

  it("an HTTP/2 body by drips: the stream is reset after the request timeout, the session goes on", async () => {
    const { port } = await start({ tls: true, headersMs: 200, requestMs: 200 });
    const client = session(port);
    const stream = client.request({ ":path": "/a", ":method": "POST" });
    stream.on("error", () => {});
    const drips = setInterval(() => !stream.destroyed && stream.write("x"), 20);
    await once(stream, "close");
    clearInterval(drips);
    expect(stream.rstCode).toBe(constants.NGHTTP2_CANCEL);
    expect((await askHttp2(client, "/b", "body")).body).toBe("POST /b body");
  });

  it("a connection is kept between requests for longer than the headers timeout, not than keep-alive", async () => {
    const { port } = await start({ headersMs: 100, keepAliveMs: 600 });
    const { socket, received } = raw(port);
    socket.write("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    await elapsed(400);
    socket.write("GET /b HTTP/1.1\r\nHost: a\r\n\r\n");
    const began = performance.now();
    expect(await received).toMatch(/GET \/a [\s\S]*GET \/b /);
    expect(performance.now() - began).toBeGreaterThan(500);
  });

  it("keep-alive outlasts the 60 s of common balancers", () => {
    expect(defaultTimeouts.keepAliveMs).toBeGreaterThan(65_000);
    expect(defaultTimeouts.headersMs).toBeLessThanOrEqual(15_000);
  });
});

describe("close", () => {
  it("finishes the request in flight and tells its client to close, while a new connection is refused", async () => {
    const { server, port, arrived, release } = await start();
    const agent = new Agent({ keepAlive: true });
    const inFlight = ask(port, "/wait", agent);
    await arrived;
    const closed = server.close(5000);
    await expect(ask(port, "/a")).rejects.toMatchObject({ code: "ECONNREFUSED" });
    release();
    const response = await inFlight;
    expect(response.body).toBe("GET /wait ");
    expect(response.headers.connection).toBe("close");
    await closed;
  });

  it("closes idle and never used connections at once", async () => {
    const { server, port } = await start();
    const agent = new Agent({ keepAlive: true });
    expect((await ask(port, "/a", agent)).headers.connection).toBe("keep-alive");
    const { socket, received } = raw(port);
    await once(socket, "connect");
    await elapsed(20);
    const began = performance.now();
    await server.close(5000);
    expect(performance.now() - began).toBeLessThan(500);
    await received;
  });

  it("closes the connection of an answer that had begun, when it ends", async () => {
    const { server, port, arrived, release } = await start();
    const { socket, received } = raw(port);
    socket.write("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    await arrived;
    await once(socket, "readable");
    const began = performance.now();
    const closed = server.close(5000);
    release();
    expect(await received).toMatch(/keep-alive[\s\S]*first [\s\S]*last[\s\S]*0\r\n\r\n$/);
    await closed;
    expect(performance.now() - began).toBeLessThan(1000);
  });

  it.each([
    ["/wait", "close", "GET /wait |Connection: close", ["GET /wait ", "Connection: close", "GET /wait "]],
    ["/b", "keep-alive", "GET /(?:wait|b) |Connection: close", ["GET /wait ", "GET /b "]],
  ])(
    "answers a pipelined %s too before the connection ends (%s)",
    async (path, _connection, parts, expected) => {
      const { server, port, arrived, release } = await start();
      const { socket, received } = raw(port);
      socket.write(`GET /wait HTTP/1.1\r\nHost: a\r\n\r\nGET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`);
      await arrived;
      await elapsed(50);
      const began = performance.now();
      const closed = server.close(5000);
      release();
      // The head of the last answer comes before its body.
      expect((await received).match(new RegExp(parts, "g"))).toEqual(expected);
      await closed;
      expect(performance.now() - began).toBeLessThan(1000);
    },
  );

  it("cuts what is left when the grace is over", async () => {
    const { server, port, arrived } = await start();
    const inFlight = ask(port, "/wait");
    inFlight.catch(() => {});
    await arrived;
    const began = performance.now();
    await server.close(200);
    expect(performance.now() - began).toBeLessThan(1000);
    await expect(inFlight).rejects.toMatchObject({ code: "ECONNRESET" });
  });

  it("while draining, still accepts, and tells every client to go elsewhere", async () => {
    const { server, port } = await start();
    server.drain();
    const response = await ask(port, "/a", new Agent({ keepAlive: true }));
    expect(response.statusCode).toBe(200);
    expect(response.headers.connection).toBe("close");
  });

  it("is one close, however often it is asked for, also before listening", async () => {
    const { server } = await start();
    expect(server.close(100)).toBe(server.close(100));
    const never = createHttpServer({ fetch: () => new Response(), rpc: undefined, logger });
    await never.close(100);
  });
});

describe("over TLS", () => {
  it("speaks HTTP/2 to those who can, and HTTP/1.1 to the others", async () => {
    const { port } = await start({ tls: true });
    const client = session(port);
    expect(await askHttp2(client, "/a", "body")).toMatchObject({ status: 200, body: "POST /a body" });
    expect((await askHttp2(client, "/rpc.v1.Service/Method")).body).toBe("rpc /rpc.v1.Service/Method");
    expect(client.alpnProtocol).toBe("h2");
    const request = httpsRequest({
      port,
      host: "localhost",
      path: "/b",
      ca: localhostCertificate.cert,
    }).end();
    const [response] = await once(request, "response");
    expect([response.httpVersion, await text(response)]).toEqual(["1.1", "GET /b "]);
  });

  it("closes with GOAWAY: streams under way finish, and the session ends", async () => {
    const { server, port, arrived, release } = await start({ tls: true });
    const client = session(port);
    const inFlight = askHttp2(client, "/wait");
    await arrived;
    const goneAway = once(client, "goaway");
    const closed = server.close(5000);
    expect((await goneAway)[0]).toBe(constants.NGHTTP2_NO_ERROR);
    release();
    expect((await inFlight).body).toBe("GET /wait ");
    await closed;
  });

  it("closes idle sessions and HTTP/1.1 connections at once, and cuts handshakes", async () => {
    const { server, port } = await start({ tls: true });
    const client = session(port);
    await askHttp2(client, "/a");
    const agent = { host: "localhost", port, ca: localhostCertificate.cert };
    const socket = connectTls(agent);
    onTestFinished(() => void socket.destroy());
    socket.write("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    await once(socket, "data");
    const { received } = raw(port);
    const began = performance.now();
    await server.close(5000);
    expect(performance.now() - began).toBeLessThan(1000);
    await received;
  });

  it("answers nonsense inside TLS 400", async () => {
    const { port } = await start({ tls: true });
    const socket = connectTls({ host: "localhost", port, ca: localhostCertificate.cert });
    socket.write("hello\r\n\r\n");
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n/);
  });

  it("an idle session is closed after the keep-alive timeout", async () => {
    const { port } = await start({ tls: true, keepAliveMs: 100 });
    const client = session(port);
    await askHttp2(client, "/a");
    await once(client, "close");
  });
});
