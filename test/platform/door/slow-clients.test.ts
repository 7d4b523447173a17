/** Clients that do not read their response, never end their request, or reset it at once, on both ports. */
import { once } from "node:events";
import { connect as connectHttp2 } from "node:http2";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, it, onTestFinished } from "vitest";
import type { Route } from "../../../src/platform/door/door.ts";
import { createGrpcServer } from "../../../src/platform/rpc/grpc-server.ts";
import { GrpcClient, loadMethod } from "../../support/grpc-client.ts";
import { drip, startServer } from "../../support/http-connections.ts";
import { beginHttp2, callFrame, frame, resetRequests } from "../../support/reset-flood.ts";
import { recorder } from "../../support/rpc-servers.ts";
import { testServices } from "../../support/rpc-services.ts";
import { waitFor } from "../../support/wait-for.ts";

const root = join(import.meta.dirname, "../../..");
const path = "/auth.v1.IntrospectionService/Introspect";
const introspect = loadMethod(
  join(root, "proto/auth/v1/introspection.proto"),
  "auth.v1.IntrospectionService",
  "Introspect",
);
const watch = loadMethod(join(root, "proto/grpc/health/v1/health.proto"), "grpc.health.v1.Health", "Watch");
/** More than the buffers of both ends of a connection hold. */
const large = "x".repeat(20_000_000);

/** A server with a large response; `closed` resolves when the connection of one has been closed. */
async function startLarge({
  chunks = 1,
  ...options
}: {
  tls?: boolean;
  responseMs: number;
  chunks?: number;
}) {
  const { promise: closed, resolve } = Promise.withResolvers<void>();
  const { port } = await startServer({
    ...options,
    fetch(_request, { incoming }) {
      incoming.socket.once("close", resolve);
      const parts = Array.from({ length: chunks }, () => large.slice(0, large.length / chunks));
      return new Response(ReadableStream.from(parts).pipeThrough(new TextEncoderStream()));
    },
  });
  return { port, closed };
}

/** A connection on which the large response was asked for. It is not read. */
function askForLarge(port: number): Socket {
  const socket = connect(port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  socket.on("error", () => undefined);
  socket.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  return socket;
}

async function startGrpc(stalls = { requestMs: 200, responseMs: 200 }) {
  const record = recorder();
  const { services, seen } = testServices();
  const grpc = createGrpcServer({ ...record, stalls });
  grpc.serve(services);
  grpc.setServing(true);
  const port = await grpc.listen("127.0.0.1", 0);
  const client = new GrpcClient(port);
  onTestFinished(async () => {
    client.close();
    await grpc.close(100);
  });
  return { ...record, port, seen, grpc, client };
}

describe("a client that does not read its response", () => {
  it("is cut over HTTP/1", async () => {
    const { port, closed } = await startLarge({ responseMs: 200 });
    const socket = askForLarge(port);
    await closed;
    let received = 0;
    socket.on("data", (part) => {
      received += part.length;
    });
    await once(socket, "close");
    expect(received).toBeLessThan(large.length);
  });

  it("is not cut while it reads, however slowly", async () => {
    // Windows are opened by megabytes, so that a slow reader lets the server send now and then only.
    const responseMs = 1_000;
    const { port } = await startLarge({ responseMs, chunks: 1_000 });
    const began = performance.now();
    let received = 0;
    for await (const part of askForLarge(port)) {
      received += part.length;
      if (received > large.length) break;
      if (performance.now() - began < 4 * responseMs) await delay(8);
    }
    expect(received).toBeGreaterThan(large.length);
    expect(performance.now() - began).toBeGreaterThan(2 * responseMs);
  });

  it("has its stream reset over HTTP/2", async () => {
    const { port } = await startLarge({ tls: true, responseMs: 200 });
    const options = { rejectUnauthorized: false, settings: { initialWindowSize: 0 } };
    const session = connectHttp2(`https://localhost:${port}`, options);
    onTestFinished(() => session.destroy());
    const stream = session.request({ ":path": "/" });
    stream.on("error", () => undefined);
    await once(stream, "close");
    expect(stream.rstCode).toBe(8);
  });
});

describe("a client that does not even read its reset", () => {
  it("loses its connection", { timeout: 10_000 }, async () => {
    const { port } = await startLarge({ tls: true, responseMs: 200 });
    const socket = await beginHttp2(port, true);
    onTestFinished(() => void socket.destroy());
    const [window, settings, ping] = [8, 4, 6];
    const unlimited = Buffer.alloc(4);
    unlimited.writeUInt32BE(2 ** 30);
    const initialWindow = Buffer.concat([Buffer.from([0, 4]), unlimited]);
    socket.pause();
    socket.write(frame(settings, 0, 0, initialWindow));
    socket.write(frame(window, 0, 0, unlimited));
    socket.write(callFrame(1, "/", true));
    // It shows by what is sent to it, since nothing is read.
    void drip(socket, frame(ping, 0, 0, Buffer.alloc(8)).toString());
    await new Promise((resolve) => socket.once("close", resolve));
    expect(socket.bytesRead).toBeLessThan(large.length);
  });
});

describe("a call over native gRPC", () => {
  const headers = { ":method": "POST", ":path": path, "content-type": "application/grpc", te: "trailers" };

  it("is reset if its message never ends", async () => {
    const { port, client, seen } = await startGrpc();
    const session = connectHttp2(`http://127.0.0.1:${port}`);
    onTestFinished(() => session.destroy());
    const stream = session.request(headers);
    stream.on("error", () => undefined);
    // The envelope of a message of ten bytes, and one of them.
    stream.write(Buffer.from([0, 0, 0, 0, 10, 1]));
    await once(stream, "close");
    expect(stream.rstCode).toBe(8);
    expect(seen.asked).toEqual([]);
    expect(await client.unary(introspect, { token: "active" })).toMatchObject({ active: true });
  });

  it("gets its status if its message never ends, and is then reset without error", async () => {
    const { port } = await startGrpc({ requestMs: 3_000, responseMs: 3_000 });
    const session = connectHttp2(`http://127.0.0.1:${port}`);
    onTestFinished(() => session.destroy());
    const stream = session.request({ ...headers, ":path": "/auth.v1.IntrospectionService/Other" });
    stream.write(Buffer.from([0, 0, 0, 0, 10, 1]));
    const [response] = await once(stream, "response");
    expect(response).toMatchObject({ "grpc-status": "12" });
    stream.resume();
    await once(stream, "close");
    expect(stream.rstCode).toBe(0);
  });

  it("is reset if it is a stream of reflection that does not end, and has few others beside it", async () => {
    const { port } = await startGrpc();
    const session = connectHttp2(`http://127.0.0.1:${port}`);
    onTestFinished(() => session.destroy());
    const reflect = () => {
      const stream = session.request({
        ...headers,
        ":path": "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
      });
      stream.on("error", () => undefined);
      return stream;
    };
    const idle = Array.from({ length: 4 }, reflect);
    const closed = Promise.all(idle.map((stream) => once(stream, "close")));
    const refused = reflect();
    const [response] = await once(refused, "response");
    expect(response).toMatchObject({ "grpc-status": "8" });
    refused.destroy();
    await closed;
    expect(idle.map(({ rstCode }) => rstCode)).toEqual([8, 8, 8, 8]);
    const later = reflect();
    await once(later, "close");
    expect(later.rstCode).toBe(8);
  });

  it("goes on if it is a stream in which nothing happens for long", async () => {
    const { grpc, client } = await startGrpc({ requestMs: 50, responseMs: 50 });
    const statuses: unknown[] = [];
    const watching = client.serverStream(watch, { service: "" });
    watching.on("error", () => undefined);
    watching.on("data", ({ status }) => statuses.push(status));
    await waitFor(() => expect(statuses).toEqual(["SERVING"]));
    await delay(300);
    grpc.setServing(false);
    await waitFor(() => expect(statuses).toEqual(["SERVING", "NOT_SERVING"]));
    watching.cancel();
  });
});

describe("requests that are reset as soon as they are sent", () => {
  it("are not begun on the port of gRPC, and too many end the connection", async () => {
    const { port, client, completed } = await startGrpc({ requestMs: 10_000, responseMs: 10_000 });
    const socket = await beginHttp2(port, false);
    socket.write(resetRequests(3_000, path));
    await once(socket, "close");
    expect(await client.unary(introspect, { token: "active" })).toMatchObject({ active: true });
    // Of one request the reset may come with the next bytes.
    expect(completed.length).toBeLessThan(100);
  });

  it("are not begun on the port of HTTP, and too many end the connection", async () => {
    let handled = 0;
    const route: Route = {
      method: undefined,
      path,
      async handle() {
        handled += 1;
      },
    };
    const { port } = await startServer({ tls: true, routes: [route] });
    const socket = await beginHttp2(port, true);
    socket.write(resetRequests(1_000, path));
    await once(socket, "close");
    expect(handled).toBeLessThan(100);
  });
});
