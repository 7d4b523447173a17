import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import {
  type ClientHttp2Session,
  connect,
  constants,
  createServer,
  type ServerHttp2Stream,
} from "node:http2";
import type { AddressInfo } from "node:net";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { releaseEndedStreams } from "../../src/platform/ended-streams.ts";

const created = "http2.server.stream.created";
let served: ServerHttp2Stream | undefined;
const told: string[] = [];

/** As a library does: it listens from when it is given the stream. */
function listen(message: unknown) {
  const { stream } = message as { stream: ServerHttp2Stream };
  served = stream;
  stream.on("close", () => told.push("on"));
  stream.once("close", () => told.push("once"));
}

/** Answers all but /wait. */
const server = createServer().on("stream", (stream, headers) => {
  stream.resume();
  if (headers[":path"] === "/wait") return;
  stream.respond({ ":status": 200 });
  stream.end("answer");
});
let client: ClientHttp2Session;

beforeAll(async () => {
  releaseEndedStreams();
  releaseEndedStreams();
  subscribe(created, listen);
  await once(server.listen(0, "127.0.0.1"), "listening");
});
afterAll(async () => {
  unsubscribe(created, listen);
  await new Promise((resolve) => server.close(resolve));
});
beforeEach(() => {
  client = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});
afterEach(() => {
  client.destroy();
  served = undefined;
  told.length = 0;
});

/** That it told of its close, and that then nobody's listeners hang on it. */
async function expectReleased() {
  await expect.poll(() => told).toEqual(["on", "once"]);
  expect(served?.eventNames()).toEqual([]);
}

test("a stream that was answered tells of its close and then holds nobody who listened", async () => {
  expect(await client.request({ ":path": "/" }).setEncoding("utf8").toArray()).toEqual(["answer"]);
  await expectReleased();
});

test("so does one that the client reset before its answer", async () => {
  const stream = client.request({ ":path": "/wait" });
  await expect.poll(() => served).toBeDefined();
  stream.close(constants.NGHTTP2_CANCEL);
  await expectReleased();
});

test("so does one whose connection is gone", async () => {
  client.request({ ":path": "/wait" }).on("error", () => undefined);
  await expect.poll(() => served).toBeDefined();
  client.destroy();
  await expectReleased();
});

test("before its close a stream is listened to once more, however often that was asked for", async () => {
  const stream = client.request({ ":path": "/wait" });
  await expect.poll(() => served).toBeDefined();
  expect(served?.listeners("close").filter(({ name }) => name === "release")).toHaveLength(1);
  stream.close(constants.NGHTTP2_CANCEL);
  await expectReleased();
});
