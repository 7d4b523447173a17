import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import {
  type ClientHttp2Session,
  connect,
  constants,
  createServer,
  type Http2Session,
  type ServerHttp2Stream,
} from "node:http2";
import { type AddressInfo, connect as connectTcp, type Socket } from "node:net";
import { setImmediate } from "node:timers/promises";
import { afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { releaseClosedStreams } from "../../../src/platform/rpc/release-closed-streams.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const created = "http2.server.stream.created";
let served: ServerHttp2Stream | undefined;
let emitted: string[] = [];

/** As a library does: it listens from when it is given the stream. */
function listen(message: unknown) {
  const { stream } = message as { stream: ServerHttp2Stream };
  served = stream;
  const events = emitted;
  stream.on("error", () => events.push("error"));
  stream.on("close", () => events.push("on"));
  stream.once("close", () => events.push("once"));
}

/** Answers all but /wait. */
const server = createServer().on("stream", (stream, headers) => {
  stream.resume();
  if (headers[":path"] === "/wait") return;
  stream.respond({ ":status": 200 });
  stream.end("answer");
});
let serverSession: Http2Session | undefined;
server.on("session", (session) => {
  serverSession = session.on("error", () => undefined);
});
let socket: Socket;
let client: ClientHttp2Session;

beforeAll(async () => {
  releaseClosedStreams();
  releaseClosedStreams();
  subscribe(created, listen);
  await once(server.listen(0, "127.0.0.1"), "listening");
});
suiteCleanup().defer(async () => {
  unsubscribe(created, listen);
  await new Promise((resolve) => server.close(resolve));
});
beforeEach(() => {
  const { port } = server.address() as AddressInfo;
  socket = connectTcp(port, "127.0.0.1").on("error", () => undefined);
  client = connect(`http://127.0.0.1:${port}`, { createConnection: () => socket });
  client.on("error", () => undefined);
});
afterEach(() => {
  client.destroy();
  served = undefined;
  emitted = [];
});

/** A request in the middle of which something happens to it. */
async function waiting() {
  const stream = client.request({ ":path": "/wait" }).on("error", () => undefined);
  const reached = await vi.waitUntil(() => served);
  return { stream, served: reached };
}

/** Expects that the stream emitted these events, and that it then has no listeners. */
async function expectReleased(events: string[]) {
  await expect.poll(() => emitted).toEqual(events);
  expect(served?.eventNames()).toEqual([]);
}

/** What a library may do that has not noticed. Without a listener, an error that was emitted would be thrown. */
async function useClosed(stream: ServerHttp2Stream) {
  stream.write("too late");
  stream.end();
  stream.close(constants.NGHTTP2_INTERNAL_ERROR);
  stream.destroy(new Error("too late"));
  for (let turn = 0; turn < 3; turn += 1) await setImmediate();
}

test("a stream with a response emits its close and then holds no listeners", async () => {
  expect(await client.request({ ":path": "/" }).setEncoding("utf8").toArray()).toEqual(["answer"]);
  await expectReleased(["on", "once"]);
});

test("so does one that the client cancels", async () => {
  const { stream, served } = await waiting();
  stream.close(constants.NGHTTP2_CANCEL);
  await expectReleased(["on", "once"]);
  await useClosed(served);
});

test("so does one that the client resets with an error, which it emits first", async () => {
  const { stream, served } = await waiting();
  stream.close(constants.NGHTTP2_INTERNAL_ERROR);
  await expectReleased(["error", "on", "once"]);
  await useClosed(served);
});

test("so does one whose connection is reset", async () => {
  const { served } = await waiting();
  socket.resetAndDestroy();
  await expectReleased(["error", "on", "once"]);
  await useClosed(served);
});

test("so does one whose session is destroyed for an error", async () => {
  const { served } = await waiting();
  serverSession?.destroy(new Error("a defect"));
  await expectReleased(["error", "on", "once"]);
  await useClosed(served);
});

test("asking for it twice adds one listener", async () => {
  const { stream, served } = await waiting();
  expect(served.listeners("close").filter(({ name }) => name === "release")).toHaveLength(1);
  stream.close(constants.NGHTTP2_CANCEL);
  await expectReleased(["on", "once"]);
});
