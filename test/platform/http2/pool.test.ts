import {
  constants,
  createSecureServer,
  createServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
  type Settings,
} from "node:http2";
import {
  type AddressInfo,
  connect as connectTcp,
  createServer as createTcpServer,
  type Server,
} from "node:net";
import { setTimeout as elapsed } from "node:timers/promises";
import { createServer as createTlsServer } from "node:tls";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Connect } from "../../../src/platform/http2/connection.ts";
import type { ExchangeResult } from "../../../src/platform/http2/exchange.ts";
import { Http2Pool, type PoolOptions } from "../../../src/platform/http2/pool.ts";
import { http2Clients } from "../../support/http2-clients.ts";
import { localhostCertificate } from "../../support/localhost-certificate.ts";
import { stopwatch } from "../../support/stopwatch.ts";

const closing: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

async function listen(server: Server | Http2Server, host = "127.0.0.1"): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, host, resolve));
  closing.push(() => new Promise((resolve) => server.close(resolve)));
  return (server.address() as AddressInfo).port;
}

type OnStream = (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void;

/** An HTTP/2 server; its origin. */
async function serve(onStream: OnStream, settings: Settings = {}): Promise<string> {
  const server = createServer({ settings });
  server.on("sessionError", () => {});
  server.on("stream", (stream, headers) => {
    stream.on("error", () => {});
    stream.resume();
    onStream(stream, headers);
  });
  return `http://127.0.0.1:${await listen(server)}`;
}

/** The client of HTTP/2 that the tests are about. */
let connect: Connect = http2Clients.own;

function poolOf(origin: string, options: Partial<PoolOptions> = {}): Http2Pool {
  const pool = new Http2Pool({ connect, origin, maxSessions: 4, maxStreams: 100, ...options });
  closing.push(() => pool.close());
  return pool;
}

const head = { path: "/", shared: [":method", "POST", ":scheme", "http", ":authority", "test"] };
const ask = (pool: Http2Pool, body = ""): Promise<ExchangeResult> => pool.request(head, body);
const askMany = (pool: Http2Pool, count: number): Promise<ExchangeResult[]> =>
  Promise.all(Array.from({ length: count }, () => ask(pool)));
const statuses = (replies: readonly ExchangeResult[]): unknown[] => [
  ...new Set(replies.map((reply) => (reply.responded ? reply.status : reply.reason))),
];
const ok: OnStream = (stream) => {
  stream.respond({ ":status": 200 });
  stream.end("fine");
};

describe.each(["own", "node"] as const)("with the client %s:", (client) => {
  beforeAll(() => {
    connect = http2Clients[client];
  });

  describe("a request", () => {
    test("is answered, with and without TLS", async () => {
      const server = createSecureServer({ ...localhostCertificate }, (_, response) => response.end("fine"));
      const port = await listen(server);
      const secure = ["localhost", "127.0.0.1"].map((host) =>
        poolOf(`https://${host}:${port}`, { ca: localhostCertificate.cert }),
      );
      for (const pool of [...secure, poolOf(await serve(ok))]) {
        const reply = await ask(pool, "body");
        expect(reply).toMatchObject({ responded: true, status: 200 });
        expect(reply.responded && reply.text()).toBe("fine");
      }
    });

    test("to a certificate that nobody knows is not sent", async () => {
      let asked = 0;
      const server = createSecureServer({ ...localhostCertificate }, () => {
        asked += 1;
      });
      const pool = poolOf(`https://localhost:${await listen(server)}`);
      expect(await ask(pool)).toMatchObject({ cause: "unreachable", reason: "DEPTH_ZERO_SELF_SIGNED_CERT" });
      expect(asked).toBe(0);
    });

    // Only Linux has all of 127.0.0.0/8 without further ado.
    test.runIf(process.platform === "linux")(
      "to a host that the certificate does not name is not sent",
      async () => {
        let asked = 0;
        const server = createSecureServer({ ...localhostCertificate }, () => {
          asked += 1;
        });
        const pool = poolOf(`https://127.0.0.2:${await listen(server, "127.0.0.2")}`, {
          ca: localhostCertificate.cert,
        });
        expect(await ask(pool)).toMatchObject({
          cause: "unreachable",
          reason: "ERR_TLS_CERT_ALTNAME_INVALID",
        });
        expect(asked).toBe(0);
      },
    );

    test("has an end: at the latest when its time is over, and the others go on", async () => {
      const origin = await serve((stream, { "x-slow": slow }) => {
        if (slow === undefined) ok(stream, {});
      });
      const pool = poolOf(origin, { timeoutMs: 2_000, maxStreams: 2, maxSessions: 1 });
      const slow = pool.request({ ...head, own: ["x-slow", "1"] }, "");
      expect(statuses(await askMany(pool, 50))).toEqual([200]);
      expect(await slow).toEqual({ responded: false, cause: "timeout", reason: "response timeout" });
    });

    test("waits for room no longer than its time", async () => {
      const pool = poolOf(await serve(() => {}), { timeoutMs: 1_000, maxStreams: 1, maxSessions: 1 });
      const reasons = statuses(await askMany(pool, 3));
      expect(reasons).toEqual(["response timeout", "no connection had room"]);
    });

    test("whose answer breaks off after its status has that status", async () => {
      const origin = await serve((stream) => {
        stream.respond({ ":status": 200 });
        stream.write("half");
        setTimeout(() => stream.close(constants.NGHTTP2_INTERNAL_ERROR), 20);
      });
      expect(await ask(poolOf(origin))).toMatchObject({ responded: true, status: 200 });
    });

    test("takes 64 KiB of an answer and no more", async () => {
      const origin = await serve((stream) => {
        stream.respond({ ":status": 500 });
        const write = (): void => {
          while (!stream.destroyed && stream.write("x".repeat(16_384)));
        };
        stream.on("drain", write);
        write();
      });
      const reply = await ask(poolOf(origin));
      expect(reply.responded && reply.text().length).toBe(65_536);
    });

    test("that is no HTTP is not sent, and disturbs no other", async () => {
      const pool = poolOf(await serve(ok));
      await ask(pool);
      expect(await pool.request({ ...head, own: ["bad\nname", "x"] }, "")).toMatchObject({
        responded: false,
      });
      expect(await ask(pool)).toMatchObject({ status: 200 });
    });
  });

  describe("streams", () => {
    test("are never more than the peer allows, on no more connections than there may be", async () => {
      let open = 0;
      let most = 0;
      const sessions = new Set<unknown>();
      const answer: OnStream = (stream) => {
        sessions.add(stream.session);
        open += 1;
        most = Math.max(most, open);
        setTimeout(() => {
          open -= 1;
          ok(stream, {});
        }, 20);
      };
      const server = createServer({ settings: { maxConcurrentStreams: 5 } });
      server.on("stream", (stream, received) => {
        stream.resume();
        stream.on("end", () => answer(stream, received));
      });
      const pool = poolOf(`http://127.0.0.1:${await listen(server)}`, { maxSessions: 3 });
      expect(statuses(await askMany(pool, 200))).toEqual([200]);
      expect(most).toBeLessThanOrEqual(15);
      expect(most).toBeGreaterThan(5);
      expect(sessions.size).toBe(3);
    });

    test("that the peer refuses are asked again, fewer at once", async () => {
      let refused = 0;
      let open = 0;
      const origin = await serve((stream) => {
        if (open >= 10) {
          refused += 1;
          stream.close(constants.NGHTTP2_REFUSED_STREAM);
          return;
        }
        open += 1;
        setTimeout(() => {
          open -= 1;
          ok(stream, {});
        }, 30);
      });
      const pool = poolOf(origin, { maxSessions: 1, maxStreams: 16 });
      expect(statuses(await askMany(pool, 100))).toEqual([200]);
      expect(refused).toBeGreaterThan(0);
      expect(refused).toBeLessThan(20);
    });

    test("that are always refused are given up", async () => {
      let asked = 0;
      const origin = await serve((stream) => {
        asked += 1;
        stream.close(constants.NGHTTP2_REFUSED_STREAM);
      });
      expect(await ask(poolOf(origin))).toMatchObject({ responded: false, cause: "aborted" });
      expect(asked).toBe(4);
    });
  });

  describe("a connection", () => {
    test("that cannot be made fails what waits for it, and is not tried again for each request", async () => {
      const closed = createTcpServer();
      const origin = `http://127.0.0.1:${await listen(closed)}`;
      await closing.pop()?.();
      const pool = poolOf(origin);
      const unreachable = { responded: false, cause: "unreachable", reason: "ECONNREFUSED" };
      for (const reply of await askMany(pool, 20)) expect(reply).toEqual(unreachable);
      expect(await ask(pool)).toEqual(unreachable);
    });

    test("whose peer speaks no HTTP/2 fails", async () => {
      const tcp = createTcpServer((socket) => socket.resume().end("HTTP/1.1 400 Bad Request\r\n\r\n"));
      expect(await ask(poolOf(`http://127.0.0.1:${await listen(tcp)}`))).toMatchObject({
        cause: "unreachable",
      });
    });

    test.each([
      ["insists on HTTP/1.1", ["http/1.1"], /^ERR_SSL_.*NO_APPLICATION_PROTOCOL$/],
      ["has no say in it", undefined, /^the peer speaks no HTTP\/2$/],
    ])("whose peer %s fails before anything is asked", async (_, ALPNProtocols, reason) => {
      const plain = createTlsServer({ ...localhostCertificate, ...(ALPNProtocols && { ALPNProtocols }) });
      plain.on("secureConnection", (socket) => void socket.resume().on("error", () => {}));
      const pool = poolOf(`https://localhost:${await listen(plain)}`, { ca: localhostCertificate.cert });
      expect(await ask(pool)).toMatchObject({ cause: "unreachable", reason: expect.stringMatching(reason) });
    });

    test("whose peer never says a word fails in time", async () => {
      const sockets = new Set<{ destroy(): void }>();
      const tcp = createTcpServer((socket) => void sockets.add(socket));
      const pool = poolOf(`http://127.0.0.1:${await listen(tcp)}`, { timeoutMs: 300 });
      expect(await ask(pool)).toMatchObject({ cause: "timeout", reason: "no connection had room" });
      for (const socket of sockets) socket.destroy();
    });

    test("whose other end is gone without a word is found out and replaced", async () => {
      const target = Number(new URL(await serve(ok)).port);
      let isFrozen = false;
      let connections = 0;
      const proxy = createTcpServer((client) => {
        connections += 1;
        const upstream = connectTcp(target, "127.0.0.1");
        const isFirst = connections === 1;
        client.on("data", (data) => void (isFrozen && isFirst ? undefined : upstream.write(data)));
        upstream.on("data", (data) => void client.write(data));
        client.on("error", () => {});
        upstream.on("error", () => {});
        client.on("close", () => upstream.destroy());
        upstream.on("close", () => client.destroy());
      });
      const pool = poolOf(`http://127.0.0.1:${await listen(proxy)}`, { silenceMs: 300 });
      expect(await ask(pool)).toMatchObject({ status: 200 });
      isFrozen = true;
      const begin = stopwatch();
      expect(await ask(pool)).toMatchObject({ responded: false, cause: "lost" });
      expect(begin()).toBeLessThan(2_000);
      expect(await ask(pool)).toMatchObject({ status: 200 });
      expect(connections).toBe(2);
    });

    test("that is silent because its peer is slow is kept", async () => {
      let connections = 0;
      const server = createServer();
      server.on("session", () => {
        connections += 1;
      });
      server.on("stream", (stream) => void setTimeout(() => ok(stream, {}), 1_500));
      const pool = poolOf(`http://127.0.0.1:${await listen(server)}`, { silenceMs: 250 });
      expect(await ask(pool)).toMatchObject({ status: 200 });
      expect(connections).toBe(1);
    });

    test("that nobody uses is closed, and opened again", async () => {
      let open = 0;
      let connections = 0;
      const server = createServer();
      server.on("stream", ok);
      server.on("session", (session) => {
        open += 1;
        connections += 1;
        session.on("close", () => {
          open -= 1;
        });
      });
      const pool = poolOf(`http://127.0.0.1:${await listen(server)}`, { idleMs: 100 });
      await ask(pool);
      await expect.poll(() => open).toBe(0);
      expect(await ask(pool)).toMatchObject({ status: 200 });
      expect(connections).toBe(2);
    });

    test("is left when the peer asks for it by a status", async () => {
      const sessions = new Set<unknown>();
      const origin = await serve((stream) => {
        sessions.add(stream.session);
        stream.respond({ ":status": 503 }, { endStream: true });
      });
      const pool = poolOf(origin, { reconnectOn: [403, 503] });
      await ask(pool);
      await ask(pool);
      expect(sessions.size).toBe(2);
    });
  });

  describe("GOAWAY", () => {
    test.each([constants.NGHTTP2_NO_ERROR, constants.NGHTTP2_ENHANCE_YOUR_CALM])(
      "with code %i: what came after the last stream is asked again, the others are not",
      async (code) => {
        const seen: string[] = [];
        let isFirst = true;
        const origin = await serve((stream, { "x-id": id }) => {
          seen.push(String(id));
          if (!isFirst) return ok(stream, {});
          if (stream.id === 3) {
            isFirst = false;
            stream.session?.goaway(code, 3);
          }
          return undefined;
        });
        const pool = poolOf(origin, { maxSessions: 1, timeoutMs: 3_000 });
        const replies = ["a", "b", "c", "d"].map((id) => pool.request({ ...head, own: ["x-id", id] }, ""));
        const [first, second, third, fourth] = await Promise.all(replies);
        expect(first).toMatchObject({ responded: false });
        expect(second).toMatchObject({ responded: false });
        expect(third).toMatchObject({ status: 200 });
        expect(fourth).toMatchObject({ status: 200 });
        expect(seen.filter((id) => id === "a" || id === "b")).toEqual(["a", "b"]);
      },
    );
  });

  test("close lets requests in flight and in the queue finish, and takes no more", async () => {
    const origin = await serve((stream) => void setTimeout(() => ok(stream, {}), 100), {
      maxConcurrentStreams: 5,
    });
    const pool = poolOf(origin, { maxSessions: 1 });
    const replies = askMany(pool, 12);
    const closed = pool.close();
    expect(await ask(pool)).toEqual({ responded: false, cause: "unreachable", reason: "closed" });
    await closed;
    expect(statuses(await replies)).toEqual([200]);
  });

  test("close ends although a request is never answered, and another waits for its room", async () => {
    const origin = await serve((stream) => {
      // Should the pool keep it, the server ends the connection.
      closing.push(async () => stream.session?.destroy());
    });
    const pool = new Http2Pool({ connect, origin, maxSessions: 1, maxStreams: 1, timeoutMs: 500 });
    const replies = askMany(pool, 2);
    const closed = pool.close().then(() => "closed");
    expect(await Promise.race([closed, elapsed(10_000, "still open", { ref: false })])).toBe("closed");
    const unanswered = { responded: false, cause: "timeout" };
    expect(await replies).toMatchObject([unanswered, unanswered]);
  });
});
