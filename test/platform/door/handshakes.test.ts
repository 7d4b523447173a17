/** Connections that never get through their handshake, or to the end of their first headers, on every kind of port. */
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { setTimeout as elapsed } from "node:timers/promises";
import { connect as connectTls } from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import { defaultTimeouts } from "../../../src/platform/http/server.ts";
import { createGrpcServer } from "../../../src/platform/rpc/grpc-server.ts";
import { startServer } from "../../support/http-connections.ts";
import { localhostCertificate } from "../../support/localhost-certificate.ts";
import { recorder } from "../../support/rpc-servers.ts";
import { testServices } from "../../support/rpc-services.ts";
import { stopwatch } from "../../support/stopwatch.ts";

async function startHttp(isTls: boolean, limitMs?: number) {
  const { server, port } = await startServer({ tls: isTls, headersMs: limitMs ?? defaultTimeouts.headersMs });
  return { port, close: () => server.close(20_000) };
}

async function startGrpc(isTls: boolean, handshakeMs?: number) {
  const tls = isTls ? localhostCertificate : undefined;
  const grpc = createGrpcServer({ ...recorder(), handshakeMs, tls });
  grpc.serve(testServices().services);
  onTestFinished(() => grpc.close(0));
  return { port: await grpc.listen("127.0.0.1", 0), close: () => grpc.close(20_000) };
}

/** The first bytes of a client of TLS. */
async function clientHello(): Promise<Buffer> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (typeof address !== "object" || address === null) throw new Error("not listening");
  const client = connectTls({ port: address.port, host: "127.0.0.1" }).on("error", () => undefined);
  const [socket] = await once(server, "connection");
  const [hello] = await once(socket, "data");
  client.destroy();
  server.close();
  return hello;
}

const preface = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
const headers = Buffer.from(`GET / HTTP/1.1\r\nHost: a\r\nX-Long: ${"x".repeat(500)}\r\n`);

/** Ports, with what a client begins with that never comes to an end there. */
const ports = [
  ["HTTP over TLS", startHttp, true, clientHello],
  ["HTTP in cleartext", startHttp, false, async () => headers],
  ["gRPC over TLS", startGrpc, true, clientHello],
  ["gRPC in cleartext", startGrpc, false, async () => preface],
] as const;

/** Connections whose clients stop at one point each. */
async function stuckClients(port: number, isTls: boolean, first: Buffer) {
  const sockets = Array.from({ length: 5 }, () => connect(port, "127.0.0.1"));
  if (isTls) sockets.push(connectTls({ port, ALPNProtocols: ["h2"], rejectUnauthorized: false }));
  const closed = sockets.map(
    (socket) =>
      new Promise((resolve) =>
        socket
          .on("error", () => undefined)
          .on("close", resolve)
          .resume(),
      ),
  );
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
  });
  await Promise.all(sockets.map((socket, n) => once(socket, n === 5 ? "secureConnect" : "connect")));
  const [, oneByte, half, all, dripping] = sockets;
  oneByte?.write(first.subarray(0, 1));
  half?.write(first.subarray(0, first.length / 2));
  all?.write(first);
  if (dripping) void drip(dripping, first);
  await accepted(port);
  return { closed: Promise.all(closed) };
}

/** All connections until now have been accepted once a later one has been refused. */
async function accepted(port: number): Promise<void> {
  const nonsense = connect(port, "127.0.0.1").on("error", () => undefined);
  nonsense.resume().write(`${"x".repeat(100)}\r\n\r\n`);
  await once(nonsense, "close");
}

async function drip(socket: Socket, bytes: Buffer): Promise<void> {
  for (const byte of bytes) {
    if (socket.destroyed) return;
    socket.write(Buffer.of(byte));
    await elapsed(50);
  }
}

describe.each(ports)("a connection of %s that never gets to a request", (_name, start, isTls, first) => {
  it("is closed when its time is over, wherever its client stops", async () => {
    const { port } = await start(isTls, 500);
    const waited = stopwatch();
    const { closed } = await stuckClients(port, isTls, await first());
    await closed;
    expect(waited()).toBeLessThan(3_000);
  });

  it("does not delay the end of the server", async () => {
    const { port, close } = await start(isTls);
    const { closed } = await stuckClients(port, isTls, await first());
    const waited = stopwatch();
    await close();
    expect(waited()).toBeLessThan(3_000);
    await closed;
  });
});

it.each([
  ["in cleartext", false],
  ["over TLS", true],
])(
  "a connection %s that has part of a second request does not delay the end of the server",
  async (_name, isTls) => {
    const { port, close } = await startHttp(isTls);
    const client = isTls
      ? connectTls({ port, rejectUnauthorized: false })
      : connect({ port, host: "127.0.0.1" });
    onTestFinished(() => void client.destroy());
    client.on("error", () => undefined).write("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    await once(client, "data");
    client.write("G");
    await accepted(port);
    const waited = stopwatch();
    await close();
    expect(waited()).toBeLessThan(3_000);
  },
);

it("has ten seconds for it", () => {
  expect(defaultTimeouts.headersMs).toBe(10_000);
});
