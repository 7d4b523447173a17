/** Our client connected to a server that plays frame by frame, and the parts of such a play. */
import { afterEach } from "vitest";
import { FrameConnection } from "../../../src/platform/http2/frame-connection.ts";
import { type Followed, follow, post, type Request } from "./client-fixture.ts";
import { frame, number, type Peer, settings, startRawServer } from "./raw-server.ts";

/** Types of frames. */
export const type = {
  data: 0,
  headers: 1,
  rst: 3,
  settings: 4,
  push: 5,
  ping: 6,
  goaway: 7,
  window: 8,
  continuation: 9,
};
/** Error codes. */
export const code = {
  protocol: 1,
  flowControl: 3,
  frameSize: 6,
  refused: 7,
  cancel: 8,
  compression: 9,
  calm: 11,
};
/** A header block: `:status: 200`. */
export const status200 = Buffer.of(0x88);
export const literal = (name: string, value: string): Buffer =>
  Buffer.concat([
    Buffer.of(0, name.length),
    Buffer.from(name),
    Buffer.of(value.length),
    Buffer.from(value, "latin1"),
  ]);
/** HEADERS of a response that goes on. */
export const response = (streamId = 1): Buffer => frame(type.headers, 0x4, streamId, status200);
export const goaway = (lastId: number, error = 0): Buffer =>
  frame(type.goaway, 0, 0, Buffer.concat([number(lastId), number(error)]));

const closing: (() => unknown)[] = [];

/** Ends what the tests of this file have opened, after each of them. Call it once in a file. */
export function closeAfterEach(): void {
  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close();
  });
}

/** A server, and a client of it that has not had its settings. */
export async function connecting(firstStreamId = 1): Promise<Followed & { readonly peer: Peer }> {
  const server = await startRawServer();
  closing.push(() => server.close());
  const followed = follow((...args) => new FrameConnection(...args, firstStreamId), server.origin);
  closing.push(() => followed.connection.destroy("the test is over"));
  return { ...followed, peer: await server.accept() };
}

export async function connected(
  first = settings(),
  firstStreamId = 1,
): Promise<Followed & { readonly peer: Peer }> {
  const wire = await connecting(firstStreamId);
  wire.peer.send(first);
  await wire.opened;
  return wire;
}

/** A connection with a request that the server has. */
export async function asked(
  first = settings(),
  body = "",
): Promise<Followed & { readonly peer: Peer; readonly request: Request }> {
  const wire = await connected(first);
  const request = post(wire.connection, {}, body);
  await wire.peer.next(type.headers);
  return { ...wire, request };
}
