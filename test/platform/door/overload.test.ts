/** What is refused while too much arrives, over every protocol, by real servers whose handlers are held back. */
import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import { join } from "node:path";
import { json } from "node:stream/consumers";
import { setTimeout } from "node:timers/promises";
import { status } from "@grpc/grpc-js";
import { describe, expect, it } from "vitest";
import { envelope, GrpcClient, loadMethod } from "../../support/grpc-client.ts";
import { exchange } from "../../support/http-app.ts";
import { localhostCertificate } from "../../support/localhost-certificate.ts";
import { startSheddableServers } from "../../support/sheddable-servers.ts";
import { waitFor } from "../../support/wait-for.ts";

type Servers = Awaited<ReturnType<typeof startSheddableServers>>;

const introspectPath = "/auth.v1.IntrospectionService/Introspect";
const root = join(import.meta.dirname, "../../..");
const introspect = loadMethod(
  join(root, "proto/auth/v1/introspection.proto"),
  "auth.v1.IntrospectionService",
  "Introspect",
);
const health = loadMethod(join(root, "proto/grpc/health/v1/health.proto"), "grpc.health.v1.Health", "Check");

function makeToken(port: number, headers: Record<string, string> = {}): Promise<Response> {
  const body = new URLSearchParams({ grant: "a" });
  return fetch(`http://127.0.0.1:${port}/api/sample/v1/tokens`, { method: "POST", body, headers });
}

/** Over a connection of its own: one that is used again may be one that the server has ended meanwhile. */
async function makeTokenAnew(port: number, headers: Record<string, string>): Promise<IncomingMessage> {
  const sent = request({
    host: "127.0.0.1",
    port,
    method: "POST",
    path: "/api/sample/v1/tokens",
    agent: false,
    headers: { "content-type": "application/x-www-form-urlencoded", ...headers },
  }).end("grant=a");
  const [response] = await once(sent, "response");
  return response;
}

function askConnect(port: number, type: string, body: string | Uint8Array<ArrayBuffer> = "{}") {
  const headers = { "content-type": type };
  return fetch(`http://127.0.0.1:${port}${introspectPath}`, { method: "POST", headers, body });
}

/** Sends more and more requests, until no more are admitted. @returns the requests, which end when they are let go */
async function saturate<T>(send: () => Promise<T>, isRefusal: (ended: T) => boolean): Promise<Promise<T>[]> {
  const sent = Array.from({ length: 450 }, send);
  await waitFor(async () => {
    // So many that they are judged as a whole, and now: what trickles in over seconds says nothing of the present.
    sent.push(...Array.from({ length: 60 }, send));
    // One that comes when all of them are started is refused for how many there are.
    await setTimeout(100);
    const last = send();
    sent.push(last);
    const ended = await Promise.race([last, setTimeout(1_000)]);
    expect(ended !== undefined && isRefusal(ended)).toBe(true);
  });
  // Some are still in flight when the test is over and the server gone.
  for (const one of sent) one.catch(() => undefined);
  return sent;
}

const saturateTokens = ({ httpPort }: Servers) =>
  saturate(
    () => makeToken(httpPort),
    (response) => response.status === 503,
  );

function callers({ grpcPort }: Servers) {
  const client = new GrpcClient(grpcPort);
  const call = () =>
    client.unary(introspect, { token: "t" }).then(
      () => ({ code: status.OK, retryAfter: undefined }),
      (error) => ({ code: error.code, retryAfter: error.metadata.get("retry-after")[0] }),
    );
  return { client, call };
}

describe("while tokens cannot be answered in time", () => {
  it("further ones are 503 in the format of the operation, before their body is there", async () => {
    const servers = await startSheddableServers();
    const sent = await saturateTokens(servers);
    const response = await makeTokenAnew(servers.httpPort, {
      "x-request-id": "mine",
      origin: "https://app.example",
    });
    expect(response.statusCode).toBe(503);
    expect(response.headers).toMatchObject({
      "retry-after": "1",
      "x-request-id": "mine",
      pragma: "no-cache",
      "content-type": "application/json",
      "access-control-allow-origin": "https://app.example",
    });
    expect(await json(response)).toEqual({
      error: "temporarily_unavailable",
      error_description: "More requests arrive than can be answered. Try again in a moment.",
    });
    const socket = connect(servers.httpPort, "127.0.0.1").setEncoding("latin1");
    socket.write(
      "POST /api/sample/v1/tokens HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\n" +
        "Content-Length: 60000\r\n\r\n",
    );
    const [first] = await socket.take(1).toArray();
    expect(first).toMatch(/^HTTP\/1\.1 503 /);
    socket.destroy();
    servers.release();
    const statuses = (await Promise.all(sent)).map((ended) => ended.status);
    expect(statuses.filter((one) => one === 200).length).toBeGreaterThanOrEqual(384);
    expect((await makeToken(servers.httpPort)).status).toBe(200);
  });

  it("lower priorities are refused too, and higher ones, and what cannot be refused, are answered", async () => {
    const servers = await startSheddableServers();
    await saturateTokens(servers);
    const base = `http://127.0.0.1:${servers.httpPort}/api/sample/v1`;
    const low = await fetch(`${base}/behaviours/good`);
    expect(low.status).toBe(503);
    expect(low.headers.get("retry-after")).toBe("1");
    expect(await low.json()).toMatchObject({ status: 503, code: "unavailable" });
    // It declares no 503.
    expect((await fetch(`${base}/items/latest`)).status).toBe(200);
    const { client, call } = callers(servers);
    const calls = [
      call(),
      askConnect(servers.httpPort, "application/json").then(({ ok }) => ({ code: ok ? 0 : 1 })),
    ];
    expect(await client.unary(health, { service: "" })).toEqual({ status: "SERVING" });
    servers.release();
    for (const { code } of await Promise.all(calls)) expect(code).toBe(status.OK);
    client.close();
  });

  it("a metric counts them, and the log has one line", async () => {
    const servers = await startSheddableServers();
    expect(await servers.metric('sample_requests_shed_total{service="sample",priority="normal"}')).toBe(0);
    await saturateTokens(servers);
    for (let n = 0; n < 5; n += 1) await makeToken(servers.httpPort);
    await waitFor(async () => {
      const shed = await servers.metric('sample_requests_shed_total{service="sample",priority="normal"}');
      expect(shed).toBeGreaterThanOrEqual(6);
    });
    expect(await servers.metric('sample_requests_in_flight{priority="normal"}')).toBeGreaterThanOrEqual(384);
    expect(servers.lines().filter(({ level }) => level === "warn")).toEqual([
      expect.objectContaining({ service: "sample", priority: "normal" }),
    ]);
  });
});

describe("while introspections cannot be answered in time", () => {
  it("further ones are UNAVAILABLE over gRPC, Connect and gRPC-Web, and all else is refused", async () => {
    const servers = await startSheddableServers();
    const { client, call } = callers(servers);
    const sent = await saturate(call, ({ code }) => code === status.UNAVAILABLE);
    expect(await call()).toEqual({ code: status.UNAVAILABLE, retryAfter: "1" });
    const connected = await askConnect(servers.httpPort, "application/json");
    expect(connected.status).toBe(503);
    expect(connected.headers.get("retry-after")).toBe("1");
    expect(await connected.json()).toMatchObject({ code: "unavailable" });
    const web = await askConnect(servers.httpPort, "application/grpc-web+proto", new Uint8Array(5));
    expect(web.status).toBe(200);
    expect(await web.text()).toMatch(
      /grpc-status: 14\r\n[\s\S]*retry-after: 1\r\n|retry-after: 1\r\n[\s\S]*grpc-status: 14\r\n/,
    );
    expect((await makeToken(servers.httpPort)).status).toBe(503);
    expect(await client.unary(health, { service: "" })).toEqual({ status: "SERVING" });
    servers.release();
    const answered = (await Promise.all(sent)).filter(({ code }) => code === status.OK);
    expect(answered.length).toBeGreaterThanOrEqual(384);
    expect((await call()).code).toBe(status.OK);
    client.close();
  });
});

it("counts introspections that wait for their start as in flight", async () => {
  const calls = 250;
  let started = 0;
  let inFlight: Promise<number | undefined> | undefined;
  const servers = await startSheddableServers({
    introspecting() {
      started += 1;
      if (started === 100) inFlight = servers.metric('sample_requests_in_flight{priority="high"}');
    },
  });
  const session = connectHttp2(`http://127.0.0.1:${servers.grpcPort}`);
  // Until then, the client sends no more than 100 of them.
  await once(session, "remoteSettings");
  const headers = { ":method": "POST", ":path": introspectPath, "content-type": "application/grpc" };
  for (let n = 0; n < calls; n += 1)
    session
      .request({ ...headers, te: "trailers" })
      .on("error", () => undefined)
      .end(envelope(Buffer.alloc(0)));
  await waitFor(() => expect(started).toBe(calls));
  expect(await inFlight).toBe(calls);
  session.destroy();
});

it("lets nobody use it against others by requests that are not finished", async () => {
  const servers = await startSheddableServers();
  servers.release();
  const head =
    "POST /api/sample/v1/tokens HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\n" +
    "Content-Length: 50\r\n\r\n";
  const sockets = Array.from({ length: 600 }, () => {
    const socket = connect(servers.httpPort, "127.0.0.1");
    socket.on("error", () => undefined).write(head);
    return socket;
  });
  const session = connectHttp2(`http://127.0.0.1:${servers.grpcPort}`);
  const headers = { ":method": "POST", ":path": introspectPath, "content-type": "application/grpc" };
  const streams = Array.from({ length: 600 }, () => session.request({ ...headers, te: "trailers" }));
  await Promise.all(sockets.map((socket) => once(socket, "connect")));
  // The server has seen all streams once it responds to what was sent after them.
  await new Promise<void>((resolve) => session.ping(() => resolve()));
  const { client, call } = callers(servers);
  // As many as make a judgement, at such a pace that the unfinished ones are late by then.
  for (let n = 0; n < 120; n += 1) {
    expect((await makeToken(servers.httpPort)).status).toBe(200);
    expect((await call()).code).toBe(status.OK);
  }
  client.close();
  for (const socket of sockets) socket.destroy();
  for (const stream of streams) stream.destroy();
  session.destroy();
});

it("lets nobody use it against others by responses that are not read", async () => {
  const servers = await startSheddableServers({ tls: localhostCertificate });
  servers.release();
  const requests = 200;
  const options = { rejectUnauthorized: false, settings: { initialWindowSize: 0 } };
  const inFlight = (priority: string) => servers.metric(`sample_requests_in_flight{priority="${priority}"}`);
  for (const [origin, priority, path, type, body] of [
    [
      `https://localhost:${servers.httpPort}`,
      "normal",
      "/api/sample/v1/tokens",
      "x-www-form-urlencoded",
      "grant=a",
    ],
    [`https://localhost:${servers.httpPort}`, "high", introspectPath, "json", "{}"],
    [`http://127.0.0.1:${servers.grpcPort}`, "high", introspectPath, "grpc", envelope(Buffer.alloc(0))],
  ] as const) {
    const session = connectHttp2(origin, options);
    const headers = {
      ":method": "POST",
      ":path": path,
      "content-type": `application/${type}`,
      te: "trailers",
    };
    const responses = Array.from({ length: requests }, async () => {
      const stream = session.request(headers).on("error", () => undefined);
      stream.end(body);
      const [response] = await once(stream, "response");
      return response[":status"];
    });
    expect(new Set(await Promise.all(responses))).toEqual(new Set([200]));
    await waitFor(async () => expect(await inFlight(priority), type).toBe(0));
    session.destroy();
  }
});

it("counts the work for requests whose connection is lost, also those that were pipelined, until it is over", async () => {
  const servers = await startSheddableServers();
  const inFlight = 'sample_requests_in_flight{priority="normal"}';
  const pipelined =
    "POST /api/sample/v1/tokens HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\n" +
    "Content-Length: 7\r\n\r\ngrant=a";
  const socket = connect(servers.httpPort, "127.0.0.1");
  socket.write(pipelined.repeat(3));
  await waitFor(async () => expect(await servers.metric(inFlight)).toBe(3));
  const closed = once(socket, "close");
  socket.destroy();
  await closed;
  // The server has seen the end of that connection once it has closed one that ended later.
  expect(await exchange(servers.httpPort, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")).toMatch(
    /^HTTP/,
  );
  expect(await servers.metric(inFlight)).toBe(3);
  servers.release();
  await waitFor(async () => expect(await servers.metric(inFlight)).toBe(0));
});
