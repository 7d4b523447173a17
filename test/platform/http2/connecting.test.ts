/** Connections to hosts that are slow to accept one, and whose other addresses lead nowhere. */
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { createServer, type LookupFunction, Socket } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import { Http2Pool } from "../../../src/platform/http2/pool.ts";
import { connectTcp } from "../../../src/platform/http2/socket.ts";
import { Http1Pool } from "../../../src/push/providers/webpush/http1-pool.ts";
import { finding, startBusyServer } from "../../support/busy-server.ts";
import { http2Clients } from "../../support/http2-clients.ts";
import { stopwatch } from "../../support/stopwatch.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

const cleanup = suiteCleanup();
const head = { path: "/", shared: [":method", "POST", ":scheme", "http", ":authority", "test"] };

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
    const port = await startBusyServer(cleanup, client === "HTTP/1.1" ? "http" : "http2", 700);
    const pool = pools[client](`http://far.example:${port}`, finding("127.0.0.1", "::1"));
    cleanup.defer(() => pool.close());
    expect(await pool.request(head, "")).toMatchObject({ responded: true, status: 200 });
  });
});

test("an address that does not respond delays the next by a quarter of a second", async () => {
  const port = await startBusyServer(cleanup, "http", 60_000);
  const server = createServer((socket) => socket.end()).listen(port, "127.0.0.2");
  cleanup.defer(() => void server.close());
  await once(server, "listening");
  const elapsed = stopwatch();
  const { signal } = new AbortController();
  const socket = await connectTcp({ host: "x", port, lookup: finding("127.0.0.1", "127.0.0.2"), signal });
  expect(socket.remoteAddress).toBe("127.0.0.2");
  const waited = elapsed();
  expect(waited).toBeGreaterThan(240);
  expect(waited).toBeLessThan(900);
  socket.destroy();
});

test("attempts end when their signal does", async () => {
  const port = await startBusyServer(cleanup, "http", 60_000);
  const opening = new AbortController();
  const attempts: Socket[] = [];
  const onAttempt = (message: unknown) => {
    const socket = typeof message === "object" && message && "socket" in message && message.socket;
    if (socket instanceof Socket) attempts.push(socket);
  };
  subscribe("net.client.socket", onAttempt);
  onTestFinished(() => void unsubscribe("net.client.socket", onAttempt));
  const lookup = finding("127.0.0.1", "127.0.0.1");
  const connecting = connectTcp({ host: "x", port, lookup, signal: opening.signal });
  await waitFor(() => expect(attempts).toHaveLength(2));
  opening.abort();
  await expect(connecting).rejects.toThrow("aborted");
  expect(attempts.map(({ destroyed }) => destroyed)).toEqual([true, true]);
});

test.each([
  ["an address that refuses says more than a family that has none", ["127.0.0.1"], "ECONNREFUSED"],
  ["a name without an address is not found", [], "ENOTFOUND"],
])("%s", async (_, addresses, code) => {
  const { signal } = new AbortController();
  const connecting = connectTcp({ host: "x", port: 1, lookup: finding(...addresses), signal });
  await expect(connecting).rejects.toMatchObject({ code });
});
