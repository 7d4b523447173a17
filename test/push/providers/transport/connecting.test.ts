/** Connections to hosts that are slow to accept one, and whose other addresses lead nowhere. */
import { once } from "node:events";
import { connect, createServer, type LookupFunction, type Socket } from "node:net";
import { Worker } from "node:worker_threads";
import { describe, expect, test } from "vitest";
import { connectTcp } from "../../../../src/platform/http2/happy-eyeballs.ts";
import { http2Clients } from "../../../../src/push/providers/create-providers.ts";
import { Http1Pool } from "../../../../src/push/providers/transport/http1-pool.ts";
import { Http2Pool } from "../../../../src/push/providers/transport/http2-pool.ts";
import { stopwatch } from "../../../support/stopwatch.ts";
import { suiteCleanup } from "../../../support/suite-cleanup.ts";

const cleanup = suiteCleanup();
const head = { path: "/", shared: [":method", "POST", ":scheme", "http", ":authority", "test"] };

/**
 * A server that accepts nothing for a while, and whose queue of connections is full: the kernel drops a SYN, as a
 * network does, and the next one comes after a second.
 */
async function startBusyServer(module: "http" | "http2", busyMs: number): Promise<number> {
  const worker = new Worker(
    `const { parentPort, workerData: { module, busyMs } } = require("node:worker_threads");
     const server = require("node:" + module).createServer((request, response) => response.end("fine"));
     server.listen({ port: 0, host: "127.0.0.1", backlog: 1 }, () => {
       parentPort.postMessage(server.address().port);
       Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, busyMs);
     });`,
    { eval: true, workerData: { module, busyMs } },
  );
  cleanup.defer(async () => void (await worker.terminate()));
  const [port] = await once(worker, "message");
  const queue: Socket[] = [connect({ port, host: "127.0.0.1" }), connect({ port, host: "127.0.0.1" })];
  for (const socket of queue) cleanup.defer(() => void socket.destroy());
  await Promise.all(queue.map((socket) => once(socket, "connect")));
  return port;
}

/** A look-up that finds these addresses, as the system's would. */
const finding =
  (...addresses: readonly string[]): LookupFunction =>
  (_, { family }, done) => {
    const all = addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
    const found = all.filter((one) => family === 0 || family === one.family);
    setImmediate(() =>
      done(found.length > 0 ? null : Object.assign(new Error(), { code: "ENOTFOUND" }), found),
    );
  };

const pools = {
  own: (origin: string, lookup: LookupFunction) =>
    new Http2Pool({ connect: http2Clients.own, origin, lookup, maxSessions: 1, maxStreams: 1 }),
  node: (origin: string, lookup: LookupFunction) =>
    new Http2Pool({ connect: http2Clients.node, origin, lookup, maxSessions: 1, maxStreams: 1 }),
  "HTTP/1.1": (origin: string, lookup: LookupFunction) =>
    new Http1Pool({ origin, lookup, maxSockets: 1, idleMs: 1_000, timeoutMs: 5_000 }),
};

describe.each(["own", "node", "HTTP/1.1"] as const)("with the client %s", (client) => {
  test("a host that is slow to connect to is reached, though its other address fails at once", async () => {
    const port = await startBusyServer(client === "HTTP/1.1" ? "http" : "http2", 700);
    const pool = pools[client](`http://far.example:${port}`, finding("127.0.0.1", "::1"));
    cleanup.defer(() => pool.close());
    expect(await pool.request(head, "")).toMatchObject({ responded: true, status: 200 });
  });
});

test("an address that does not respond delays the next by a quarter of a second", async () => {
  const port = await startBusyServer("http", 60_000);
  const server = createServer((socket) => socket.end()).listen(port, "127.0.0.2");
  cleanup.defer(() => void server.close());
  await once(server, "listening");
  const elapsed = stopwatch();
  const { signal } = new AbortController();
  const socket = await connectTcp({ host: "x", port, lookup: finding("127.0.0.1", "127.0.0.2"), signal });
  expect(socket.remoteAddress).toBe("127.0.0.2");
  expect(elapsed()).toBeLessThan(900);
  socket.destroy();
});

test("attempts end when their signal does", async () => {
  const port = await startBusyServer("http", 60_000);
  const opening = new AbortController();
  const connecting = connectTcp({ host: "127.0.0.1", port, signal: opening.signal });
  opening.abort();
  await expect(connecting).rejects.toThrow("aborted");
});

test.each([
  ["an address that refuses says more than a family that has none", ["127.0.0.1"], "ECONNREFUSED"],
  ["a name without an address is not found", [], "ENOTFOUND"],
])("%s", async (_, addresses, code) => {
  const { signal } = new AbortController();
  const connecting = connectTcp({ host: "x", port: 1, lookup: finding(...addresses), signal });
  await expect(connecting).rejects.toMatchObject({ code });
});
