/** How connections end without losing a request, in HTTP/1.1 and HTTP/2, with and without TLS. */
import { once } from "node:events";
import { Agent } from "node:http";
import { constants } from "node:http2";
import { request as httpsRequest } from "node:https";
import { text } from "node:stream/consumers";
import { setTimeout as elapsed } from "node:timers/promises";
import { connect as connectTls } from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import { createHttpServer } from "../../../src/platform/http/server.ts";
import { captureLog } from "../../support/captured-log.ts";
import { ask, askHttp2, raw, session, startServer } from "../../support/http-connections.ts";
import { localhostCertificate } from "../../support/localhost-certificate.ts";
import { stopwatch } from "../../support/stopwatch.ts";
import { waitFor } from "../../support/wait-for.ts";

describe("close", () => {
  it("finishes the request in flight and announces the close to its client, while a new connection is refused", async () => {
    const { server, port, arrived, release } = await startServer();
    const agent = new Agent({ keepAlive: true });
    const inFlight = ask(port, "/wait", agent);
    await arrived;
    const closed = server.close(5000);
    // A connection that arrives now may still get a response.
    const outcome = () => ask(port, "/a").then(String, (error: NodeJS.ErrnoException) => error.code);
    await expect.poll(outcome).toBe("ECONNREFUSED");
    release();
    const response = await inFlight;
    expect(response.body).toBe("GET /wait ");
    expect(response.headers.connection).toBe("close");
    await closed;
  });

  it("closes idle and never used connections at once", async () => {
    const { server, port } = await startServer();
    const agent = new Agent({ keepAlive: true });
    expect((await ask(port, "/a", agent)).headers.connection).toBe("keep-alive");
    const { socket, received } = raw(port);
    await once(socket, "connect");
    await elapsed(20);
    const began = stopwatch();
    await server.close(5000);
    expect(began()).toBeLessThan(3000);
    await received;
  });

  it("closes the connection of a response that had begun, when it ends", async () => {
    const { server, port, arrived, release } = await startServer();
    const { socket, received } = raw(port);
    socket.write("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    await arrived;
    await once(socket, "readable");
    const began = stopwatch();
    const closed = server.close(5000);
    release();
    expect(await received).toMatch(/keep-alive[\s\S]*first [\s\S]*last[\s\S]*0\r\n\r\n$/);
    await closed;
    expect(began()).toBeLessThan(3000);
  });

  it.each([
    ["/wait", "close", "GET /wait |Connection: close", ["GET /wait ", "Connection: close", "GET /wait "]],
    ["/b", "keep-alive", "GET /(?:wait|b) |Connection: close", ["GET /wait ", "GET /b "]],
  ])(
    "answers a pipelined %s too before the connection ends (%s)",
    async (path, _connection, parts, expected) => {
      const { server, port, arrived, release } = await startServer();
      const { socket, received } = raw(port);
      socket.write(`GET /wait HTTP/1.1\r\nHost: a\r\n\r\nGET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`);
      await arrived;
      await elapsed(50);
      const began = stopwatch();
      const closed = server.close(5000);
      release();
      // The head of the last response comes before its body.
      expect((await received).match(new RegExp(parts, "g"))).toEqual(expected);
      await closed;
      expect(began()).toBeLessThan(3000);
    },
  );

  it("cuts what is left when the grace is over", async () => {
    const { server, port, arrived } = await startServer();
    const inFlight = ask(port, "/wait");
    inFlight.catch(() => {});
    await arrived;
    const began = stopwatch();
    await server.close(200);
    expect(began()).toBeLessThan(3000);
    await expect(inFlight).rejects.toMatchObject({ code: "ECONNRESET" });
  });

  it("while draining, still accepts, and announces the close to every client", async () => {
    const { server, port } = await startServer();
    server.drain();
    const response = await ask(port, "/a", new Agent({ keepAlive: true }));
    expect(response.statusCode).toBe(200);
    expect(response.headers.connection).toBe("close");
  });

  it("after a drain loses no request of clients that obey the announcement, under load", async () => {
    const [old, next] = [await startServer(), await startServer()];
    let { port } = old;
    let isOver = false;
    let answered = 0;
    const clients = Array.from({ length: 16 }, async () => {
      const agent = new Agent({ keepAlive: true });
      for (; !isOver; answered += 1) expect((await ask(port, "/a", agent)).statusCode).toBe(200);
      agent.destroy();
    });
    await elapsed(100);
    // As a process is stopped: it is not ready, the balancer notices a little later, and then it closes.
    old.server.drain();
    await elapsed(50);
    port = next.port;
    await elapsed(100);
    await old.server.close(1000);
    await waitFor(() => expect(answered).toBeGreaterThan(100));
    isOver = true;
    await Promise.all(clients);
  });

  it("is one close, however often it is called, also before listening", async () => {
    const { server } = await startServer();
    expect(server.close(100)).toBe(server.close(100));
    const { logger } = captureLog();
    const never = createHttpServer({ logger });
    await never.close(100);
  });
});

describe("over TLS", () => {
  it("speaks HTTP/2 to those who can, and HTTP/1.1 to the others", async () => {
    const { port } = await startServer({ tls: true });
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
    const { server, port, arrived, release } = await startServer({ tls: true });
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

  it("while draining, sends GOAWAY at once, finishes what is under way, and still takes new sessions", async () => {
    const { server, port, arrived, release } = await startServer({ tls: true });
    const client = session(port);
    const inFlight = askHttp2(client, "/wait");
    await arrived;
    const goneAway = once(client, "goaway");
    server.drain();
    expect((await goneAway)[0]).toBe(constants.NGHTTP2_NO_ERROR);
    expect(await askHttp2(session(port), "/c")).toMatchObject({ status: 200 });
    release();
    expect((await inFlight).body).toBe("GET /wait ");
  });

  it("closes idle sessions and connections at once, used or not, secured or not yet", async () => {
    const { server, port } = await startServer({ tls: true });
    const client = session(port);
    await askHttp2(client, "/a");
    const agent = { host: "localhost", port, ca: localhostCertificate.cert };
    const socket = connectTls(agent);
    onTestFinished(() => void socket.destroy());
    socket.write("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    await once(socket, "data");
    const unused = connectTls(agent);
    onTestFinished(() => void unused.destroy());
    await once(unused, "secureConnect");
    const { received } = raw(port);
    const began = stopwatch();
    await server.close(5000);
    expect(began()).toBeLessThan(3000);
    await received;
  });

  it("answers nonsense inside TLS 400", async () => {
    const { port } = await startServer({ tls: true });
    const socket = connectTls({ host: "localhost", port, ca: localhostCertificate.cert });
    socket.write("hello\r\n\r\n");
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n/);
  });

  it("an idle session is closed after the keep-alive timeout", async () => {
    const { port } = await startServer({ tls: true, keepAliveMs: 100 });
    const client = session(port);
    await askHttp2(client, "/a");
    await once(client, "close");
  });
});
