/** Routing of requests to the handlers, and responses to clients that send nonsense or take too long. */
import { once } from "node:events";
import { constants } from "node:http2";
import { text } from "node:stream/consumers";
import { setTimeout as elapsed } from "node:timers/promises";
import { connect as connectTls } from "node:tls";
import { describe, expect, it } from "vitest";
import { defaultTimeouts } from "../../../src/platform/http/server.ts";
import { ask, askHttp2, drip, raw, serverLog, session, startServer } from "../../support/http-connections.ts";
import { stopwatch } from "../../support/stopwatch.ts";

describe("dispatch", () => {
  it("gives RPC paths to RPC, whatever the query, and the rest to the APIs", async () => {
    const { port } = await startServer();
    const bodies = ["/rpc.v1.Service/Method?a=/x", "/rpc.v1.Service/Methods", "/a?b=/rpc.v1.Service/Method"];
    expect(await Promise.all(bodies.map(async (path) => (await ask(port, path)).body))).toEqual([
      "rpc /rpc.v1.Service/Method?a=/x",
      "GET /rpc.v1.Service/Methods ",
      "GET /a ",
    ]);
  });

  it("answers a request whose target or Host is not valid 400", async () => {
    const { port } = await startServer();
    const { socket, received } = raw(port);
    socket.write("GET /a HTTP/1.1\r\nHost: a b/c\r\nConnection: close\r\n\r\n");
    expect(await received).toMatch(
      /^HTTP\/1\.1 400 Bad Request\r\n[\s\S]*application\/problem\+json[\s\S]*"invalid_request"/,
    );
  });

  it.each([
    "/a/../b",
    "/a/./b",
    "/a/..",
    "/..",
    "/a/%2e%2e/b",
    "/a/%2E./b",
    "/a/.%2e",
    "/a\\..\\b",
    "/a\\b",
    "/a#b",
    "/#",
    "/rpc.v1.Service/../Method",
  ])("refuses %s, which a proxy may read as another path", async (path) => {
    const { port } = await startServer();
    const { socket, received } = raw(port);
    socket.write(`GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`);
    const [head = "", body = ""] = (await received).split("\r\n\r\n");
    expect(head.split("\r\n")[0]).toBe("HTTP/1.1 400 Bad Request");
    expectProblem(head, body);
  });

  it.each(["/a?b=/../c", "/.well-known/x", "/a/...", "/a/b..c", "/a/%2ewell"])("serves %s", async (path) => {
    const { port } = await startServer();
    expect((await ask(port, path)).body).toContain("GET /");
  });

  it("responds with 500 to an error of the APIs, without the cause, and logs it with the response's request id", async () => {
    const { port } = await startServer();
    const response = await ask(port, "/fail");
    expect(response.statusCode).toBe(500);
    expect(response.body).not.toContain("inner matter");
    const { requestId } = JSON.parse(response.body);
    expect(response.headers["x-request-id"]).toBe(requestId);
    expect(serverLog()).toContainEqual(
      expect.objectContaining({ requestId, err: expect.objectContaining({ message: "inner matter" }) }),
    );
  });
});

describe("what cannot be handled does not end the process", () => {
  it.each([
    ["an invalid URL in RPC, 400", () => new URL("/rpc", "http://a b/c"), 400],
    ["a defect in RPC, 500", () => JSON.parse("inner matter"), 500],
  ])("%s", async (_what, fail, status) => {
    const { port } = await startServer({
      fetch: () => new Response("alive"),
      routes: [{ method: undefined, path: "/rpc", handle: async () => void fail() }],
    });
    const response = await ask(port, "/rpc");
    expect(response.statusCode).toBe(status);
    expect(JSON.parse(response.body)).toMatchObject({ status });
    expect((await ask(port, "/")).body).toBe("alive");
  });

  it("a header that cannot be written, 500", async () => {
    const fetch = () => new Response("x", { headers: { "x-a": "\u0001" } });
    const { port } = await startServer({ fetch });
    const response = await ask(port, "/");
    expect(response.statusCode).toBe(500);
    expect(JSON.parse(response.body)).toMatchObject({ code: "internal_error" });
  });
});

function expectProblem(head: string, body: string): void {
  const header = (name: string) => new RegExp(`^${name}: (.*)$`, "im").exec(head)?.[1];
  const status = Number(head.split(" ")[1]);
  const content = header("transfer-encoding") === "chunked" ? body.split("\r\n")[1] : body;
  const { requestId, ...problem } = JSON.parse(content ?? "");
  expect(header("content-type")).toBe("application/problem+json");
  expect(header("x-request-id")).toBe(requestId);
  expect(problem).toEqual({
    type: "about:blank",
    title: expect.any(String),
    status,
    detail: expect.any(String),
    code: "invalid_request",
  });
}

describe("a client that sends nonsense or takes too long", () => {
  it.each([
    ["no HTTP", "hello\r\n\r\n", "HTTP/1.1 400 Bad Request"],
    ["no Host", "GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request"],
    [
      "two lengths",
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
      "HTTP/1.1 400 Bad Request",
    ],
    ["two hosts", "GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", "HTTP/1.1 400 Bad Request"],
    ["the same host twice", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "HTTP/1.1 400 Bad Request"],
    [
      "huge headers",
      `GET / HTTP/1.1\r\nHost: a\r\nX: ${"x".repeat(20_000)}\r\n\r\n`,
      "HTTP/1.1 431 Request Header Fields Too Large",
    ],
    ["an unknown method", "GRAB / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 400 Bad Request"],
    ["HTTP/2 without TLS", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 400 Bad Request"],
    [
      "an expectation that cannot be met",
      "GET / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n",
      "HTTP/1.1 417 Expectation Failed",
    ],
    ...["gzip, chunked", "identity, chunked", "chunked;a=b, chunked"].map((coding) => [
      `a body in ${coding}`,
      `POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: ${coding}\r\n\r\n0\r\n\r\n`,
      "HTTP/1.1 501 Not Implemented",
    ]),
  ])("%s gets a problem, and the connection is closed", async (_what, message, status) => {
    const { port } = await startServer();
    const { socket, received } = raw(port);
    socket.write(message);
    const [head = "", body = ""] = (await received).split("\r\n\r\n");
    expect(head.split("\r\n")[0]).toBe(status);
    expectProblem(head, body);
  });

  it.each([
    ["over HTTP/1.0 in chunks", "POST /a HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked", "200"],
    ["without a Host", "POST /a HTTP/1.1\r\nTransfer-Encoding: Chunked", "400"],
    [
      "in a coding that is not understood",
      "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked",
      "501",
    ],
    [
      "with an Expect that cannot be met",
      "POST /a HTTP/1.1\r\nHost: a\r\nExpect: b\r\nTransfer-Encoding: chunked",
      "417",
    ],
    ["of an ambiguous path", "POST /a/../b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked", "400"],
  ])("nothing behind a message %s is served", async (_what, head, status) => {
    const served: string[] = [];
    const { port } = await startServer({
      async fetch(request) {
        served.push(`${request.method} ${await request.text()}`);
        return new Response("done");
      },
    });
    const { socket, received } = raw(port);
    const behind = "PUT /b HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    socket.write(`${head}\r\nConnection: keep-alive\r\n\r\n1\r\nx\r\n0\r\n\r\n${behind}`);
    const all = await received;
    expect(all.match(/HTTP\/1\.1 \d+/g)).toEqual([`HTTP/1.1 ${status}`]);
    expect(all).toMatch(/^Connection: close\r$/m);
    expect(served).toEqual(status === "200" ? ["POST x"] : []);
  });

  it("HTTP/2 without TLS is answered with the name of the port that speaks it", async () => {
    const { port } = await startServer();
    const { socket, received } = raw(port);
    socket.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    expect(await received).toContain("GRPC_PORT");
  });

  it("an unknown method after a request that was answered, and over TLS, gets one too", async () => {
    const { port } = await startServer();
    const { socket, received } = raw(port);
    socket.write("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    await elapsed(200);
    socket.write("GRAB /b HTTP/1.1\r\nHost: a\r\n\r\n");
    expect(await received).toMatch(
      /GET \/a [\s\S]*HTTP\/1\.1 400 [\s\S]*"The method of the request is unknown\."/,
    );

    const { port: secure } = await startServer({ tls: true });
    const client = connectTls({ port: secure, host: "127.0.0.1", rejectUnauthorized: false });
    client.write("GRAB / HTTP/1.1\r\nHost: a\r\n\r\n");
    expect(await text(client)).toMatch(/^HTTP\/1\.1 400 [\s\S]*"code":"invalid_request"/);
  });

  it.each([
    ["nonsense", "POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx", "nonsense\r\n\r\n"],
    [
      "a request over HTTP/1.0 with a transfer coding, and nonsense",
      "POST /wait HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
      "nonsense\r\n\r\n",
    ],
    [
      "a request with a broken body",
      "POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
      "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
    ],
    ["the end of half a head", "POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx", ""],
  ])(
    "%s behind a request that is carried out leaves it its response, the last one",
    async (_what, request, rest) => {
      const { port, arrived, release } = await startServer();
      const { socket, received } = raw(port);
      socket.write(request + rest);
      if (rest === "") socket.end("POST /a");
      await arrived;
      await ask(port, "/a");
      release();
      const all = await received;
      expect(all).toMatch(/^HTTP\/1\.1 200 [\s\S]*connection: close[\s\S]*POST \/wait x/i);
      expect(all.match(/HTTP\/1\.1/g)).toHaveLength(1);
    },
  );

  it("nonsense in the middle of a response leaves the response as it is", async () => {
    const { port, arrived, release } = await startServer();
    const { socket, received } = raw(port);
    socket.write("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    await arrived;
    await elapsed(200);
    socket.write("nonsense\r\n\r\n");
    await ask(port, "/a");
    release();
    const all = await received;
    expect(all).toMatch(/first [\s\S]*last\r\n0\r\n\r\n$/);
    expect(all.match(/HTTP\/1\.1/g)).toHaveLength(1);
  });

  it.each([
    ["nothing at all", ""],
    ["headers by drips", "GET / HTTP/1.1\r\nHost: a\r\n"],
  ])("%s: 408 after the headers timeout", async (_what, message) => {
    const { port } = await startServer({ headersMs: 150, requestMs: 10_000 });
    const { socket, received } = raw(port);
    socket.write(message);
    const dripping = message === "" ? undefined : drip(socket, "X: y\r\n");
    const [head = "", body = ""] = (await received).split("\r\n\r\n");
    expect(head).toMatch(/^HTTP\/1\.1 408 /);
    expectProblem(head, body);
    await dripping;
  });

  it("a body by drips: 408 after the request timeout", async () => {
    const { port } = await startServer({ headersMs: 100, requestMs: 300 });
    const { socket, received } = raw(port);
    socket.write("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
    const dripping = drip(socket, "x");
    expect(await received).toMatch(/^HTTP\/1\.1 408 /);
    await dripping;
  });

  it("an HTTP/2 body by drips: the stream is reset after the request timeout, the session stays open", async () => {
    // The handshake has its time, however busy the machine is.
    const { port } = await startServer({ tls: true, headersMs: 1_000, requestMs: 1_000 });
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
    const { port } = await startServer({ headersMs: 100, keepAliveMs: 600 });
    const { socket, received } = raw(port);
    socket.write("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    await elapsed(400);
    socket.write("GET /b HTTP/1.1\r\nHost: a\r\n\r\n");
    const [began, waited] = [performance.now(), stopwatch()];
    expect(await received).toMatch(/GET \/a [\s\S]*GET \/b /);
    expect(performance.now() - began).toBeGreaterThan(500);
    // Node adds a second of its own, for requests that are on the way.
    expect(waited()).toBeLessThan(4500);
  });

  it("keep-alive outlasts the 60 s of common balancers", () => {
    expect(defaultTimeouts.keepAliveMs).toBeGreaterThan(65_000);
    expect(defaultTimeouts.headersMs).toBeLessThanOrEqual(15_000);
  });
});
