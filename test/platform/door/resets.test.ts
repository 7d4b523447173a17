/** Streams that are reset count against their connection, whoever sends the reset, unless the server chose it. */
import { once } from "node:events";
import { constants } from "node:http2";
import type { Socket } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import type { Route } from "../../../src/platform/door/door.ts";
import { startServer } from "../../support/http-connections.ts";
import { beginHttp2, callFrame, frame } from "../../support/reset-flood.ts";

const path = "/held";
const types = { reset: 3, ping: 6, goaway: 7 };
const perStep = 20;

/** A server that responds to nothing, and a connection to it. */
async function connectHeld(requestMs = 30_000) {
  const route: Route = { method: undefined, path, handle: async () => undefined };
  const { port } = await startServer({ tls: true, routes: [route], requestMs, headersMs: 200 });
  const socket = await beginHttp2(port, true);
  onTestFinished(() => void socket.destroy());
  return { socket, frames: framesOf(socket) };
}

interface Seen {
  /** Error codes of GOAWAY frames. */
  readonly goaways: number[];
  readonly resets: number[];
  pings: number;
}

function framesOf(socket: Socket): Seen {
  const seen: Seen = { goaways: [], resets: [], pings: 0 };
  let unread = Buffer.alloc(0);
  socket.on("data", (bytes: Buffer) => {
    unread = Buffer.concat([unread, bytes]);
    while (unread.length >= 9 && unread.length >= 9 + unread.readUIntBE(0, 3)) {
      const end = 9 + unread.readUIntBE(0, 3);
      const type = unread.readUInt8(3);
      if (type === types.goaway) seen.goaways.push(unread.readUInt32BE(13));
      if (type === types.ping) seen.pings += 1;
      if (type === types.reset) seen.resets.push(unread.readUInt32BE(9));
      unread = unread.subarray(end);
    }
  });
  return seen;
}

const cancel = Buffer.from([0, 0, 0, constants.NGHTTP2_CANCEL]);

describe("more than 256 streams at once", () => {
  it.each([
    ["that the client resets", (id: number) => frame(types.reset, 0, id, cancel)],
    // Trailers with pseudo-headers, which are malformed (RFC 9113 section 8.1).
    ["that the client has the server reset", (id: number) => callFrame(id, path)],
  ])("%s end the connection with ENHANCE_YOUR_CALM", async (_what, behind) => {
    const { socket, frames } = await connectHeld();
    const closed = once(socket, "close");
    // A few at a time, and no more once the server has ended it, so that its last frame arrives.
    for (let sent = 0; sent < 400 && frames.goaways.length === 0; sent += perStep) {
      const ids = Array.from({ length: perStep }, (_, n) => 2 * (sent + n) + 1);
      const step = ids.flatMap((id) => [callFrame(id, path), behind(id)]);
      socket.write(Buffer.concat([...step, frame(types.ping, 0, 0, Buffer.alloc(8))]));
      const { pings } = frames;
      while (frames.pings === pings && frames.goaways.length === 0 && !socket.closed)
        await Promise.race([once(socket, "data"), closed]);
    }
    await closed;
    expect(frames.goaways).toContain(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  });
});

it("as many as the server resets, because they stall, leave the connection open", async () => {
  const { socket, frames } = await connectHeld(300);
  for (const round of [0, 1]) {
    const ids = Array.from({ length: 200 }, (_, n) => 2 * (200 * round + n) + 1);
    socket.write(Buffer.concat(ids.map((id) => callFrame(id, path))));
    while (frames.resets.length < 200 * (round + 1)) await once(socket, "data");
  }
  expect(new Set(frames.resets)).toEqual(new Set([constants.NGHTTP2_CANCEL]));
  expect(frames.goaways).toEqual([]);
});

it("numbers of streams that the client skips, as of calls that it never sent, do not count", async () => {
  // The stall is later than a look at the numbers.
  const { socket, frames } = await connectHeld(400);
  socket.write(Buffer.concat([callFrame(1, path), callFrame(4_001, path)]));
  while (frames.resets.length < 2) await once(socket, "data");
  expect(frames.goaways).toEqual([]);
});
