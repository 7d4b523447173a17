/** When our client sends PINGs. */
import { expect, onTestFinished, test } from "vitest";
import { Http2Pool, type PoolOptions } from "../../../src/platform/http2/pool.ts";
import { shared } from "./client-fixture.ts";
import { frame, number, ok, type Peer, settings, startRawServer } from "./raw-server.ts";
import { code, type } from "./wire-fixture.ts";

async function serve(options: Partial<PoolOptions>) {
  const server = await startRawServer();
  onTestFinished(() => server.close());
  const pool = new Http2Pool({ origin: server.origin, maxSessions: 1, maxStreams: 10, ...options });
  const ask = () => pool.request({ path: "/", shared }, "");
  return { ask, accept: server.accept };
}
const pings = ({ frames }: Peer) => frames.filter((sent) => sent.type === type.ping && sent.flags === 0);
/** The milliseconds until the next PING. */
async function untilPing(peer: Peer): Promise<number> {
  const since = performance.now();
  const { payload } = await peer.next(type.ping);
  peer.send(frame(type.ping, 1, 0, payload));
  return performance.now() - since;
}

test("a connection without requests gets none where the pool says so, and one as soon as a request waits", async () => {
  const { ask, accept } = await serve({
    silenceMs: 100,
    idleSilenceMs: Number.POSITIVE_INFINITY,
    idleMs: 800,
  });
  const first = ask();
  const peer = await accept();
  peer.send(settings());
  await peer.next(type.headers);
  await untilPing(peer);
  peer.send(ok(1));
  await first;
  const before = pings(peer).length;
  // It is closed as idle, after many sweeps of the pool.
  await peer.next(type.goaway);
  expect(pings(peer).length).toBe(before);
});

test("a peer that got too many gets half as many, in the connections that follow", async () => {
  const { ask, accept } = await serve({ silenceMs: 400 });
  const result = ask();
  const peer = await accept();
  peer.send(settings());
  await peer.next(type.headers);
  expect(await untilPing(peer)).toBeLessThan(800);
  const debugData = Buffer.from("too_many_pings");
  peer.send(frame(type.goaway, 0, 0, Buffer.concat([number(0), number(code.calm), debugData])));
  const next = await accept();
  next.send(settings());
  await next.next(type.headers);
  expect(await untilPing(next)).toBeGreaterThan(750);
  next.send(ok(1));
  expect(await result).toMatchObject({ status: 200 });
});
