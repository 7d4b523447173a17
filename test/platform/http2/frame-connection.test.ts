/** Our client against a server that does what RFC 9113 allows. */
import { describe, expect, test } from "vitest";
import { post } from "./client-fixture.ts";
import { frame, number, ok, settings } from "./raw-server.ts";
import {
  asked,
  closeAfterEach,
  code,
  connected,
  goaway,
  literal,
  response,
  status200,
  type,
} from "./wire-fixture.ts";

closeAfterEach();

describe("a response", () => {
  test.each<[string, Buffer[], { status?: number; body?: string }]>([
    ["without a body", [ok(1)], {}],
    [
      "with padding everywhere",
      [
        frame(type.headers, 0xc, 1, Buffer.concat([Buffer.of(3), status200, Buffer.alloc(3)])),
        frame(type.data, 0x8, 1, Buffer.concat([Buffer.of(200), Buffer.from("fi"), Buffer.alloc(200)])),
        frame(type.data, 0x9, 1, Buffer.concat([Buffer.of(0), Buffer.from("ne")])),
      ],
      { body: "fine" },
    ],
    ["with a priority", [frame(type.headers, 0x25, 1, Buffer.concat([Buffer.alloc(5, 1), status200]))], {}],
    [
      "in CONTINUATION frames, one of them empty",
      [
        frame(type.headers, 0x1, 1, status200.subarray(0, 0)),
        frame(type.continuation, 0, 1, status200),
        frame(type.continuation, 0, 1),
        frame(type.continuation, 0x4, 1, literal("x-a", "b")),
      ],
      {},
    ],
    [
      "after interim ones",
      [
        frame(type.headers, 0x4, 1, literal(":status", "103")),
        frame(type.headers, 0x4, 1, literal(":status", "100")),
        ok(1),
      ],
      {},
    ],
    [
      "with trailers",
      [
        response(),
        frame(type.data, 0, 1, Buffer.from("fine")),
        frame(type.headers, 0x5, 1, literal("x-t", "1")),
      ],
      { body: "fine" },
    ],
    [
      "among frames that nobody knows, and PRIORITY",
      [
        frame(0xfa, 0xff, 1, Buffer.alloc(20)),
        frame(0x0a, 0, 0, Buffer.alloc(4)),
        frame(0x2, 0, 1, Buffer.alloc(5)),
        response(),
        frame(0xfb, 0, 77),
        frame(type.data, 0x1, 1, Buffer.from("fine")),
      ],
      { body: "fine" },
    ],
    ["with a status of its own", [frame(type.headers, 0x5, 1, literal(":status", "429"))], { status: 429 }],
  ])("%s is read, also byte by byte", async (_, frames, { status = 200, body = "" }) => {
    for (const isSlow of [false, true]) {
      const { peer, request } = await asked();
      const bytes = Buffer.concat(frames);
      if (!isSlow) peer.send(bytes);
      else {
        peer.socket.setNoDelay();
        for (const byte of bytes) {
          peer.send(Buffer.of(byte));
          await new Promise(setImmediate);
        }
      }
      expect(await request.result).toMatchObject({ status, body, end: { isUnprocessed: false } });
    }
  });

  test("with the same fields as the one before is still its own", async () => {
    const { connection, peer } = await connected();
    const block = Buffer.concat([status200, literal("x-a", "1")]);
    const other = Buffer.concat([status200, literal("x-a", "2")]);
    const requests = [1, 2, 3].map(() => post(connection));
    for (const id of [1, 3, 5]) peer.send(frame(type.headers, 0x5, id, id === 5 ? other : block));
    const values = await Promise.all(requests.map(async ({ result }) => (await result).fields?.get("x-a")));
    expect(values).toEqual(["1", "1", "2"]);
  });

  test("that comes before the body is sent ends the body", async () => {
    const { peer, request } = await asked(settings({ 4: 10 }), "x".repeat(100));
    await peer.next(type.data);
    peer.send(ok(1));
    expect(await request.result).toMatchObject({ status: 200 });
    expect(await peer.next(type.rst)).toMatchObject({ streamId: 1, payload: number(code.cancel) });
    expect(peer.bodyBytes(1)).toBe(10);
  });
});

describe("a request is certainly not processed", () => {
  test("if the server refuses its stream", async () => {
    const { peer, request } = await asked();
    peer.send(frame(type.rst, 0, 1, number(code.refused)));
    expect((await request.result).end).toMatchObject({ resetCode: code.refused, isUnprocessed: true });
  });

  test.each([code.cancel, 0, 2, code.calm])("but not if it resets it with code %i", async (error) => {
    const { peer, request } = await asked();
    peer.send(frame(type.rst, 0, 1, number(error)));
    expect((await request.result).end).toMatchObject({ resetCode: error, isUnprocessed: false });
  });

  test("if it comes behind the last stream of GOAWAY; those before it go on", async () => {
    const { connection, peer, retired, closed } = await connected();
    const requests = [1, 3, 5, 7].map(() => post(connection));
    await peer.next(type.headers);
    peer.send(goaway(0x7fff_ffff), goaway(3));
    await retired;
    const [first, second, third, fourth] = requests;
    for (const late of [third, fourth]) {
      expect((await late?.result)?.end).toMatchObject({ resetCode: undefined, isUnprocessed: true });
    }
    expect(connection.isOpen).toBe(false);
    expect(() => post(connection)).toThrow();
    peer.send(ok(1), ok(3));
    for (const early of [first, second]) expect(await early?.result).toMatchObject({ status: 200 });
    await closed;
    expect(connection.reason).toBe("connection closed");
  });

  test("but not if the connection ends after GOAWAY without a response", async () => {
    const { peer, request, closed, connection } = await asked();
    peer.send(goaway(1, code.calm));
    peer.socket.end();
    expect((await request.result).end).toMatchObject({ resetCode: undefined, isUnprocessed: false });
    await closed;
    expect(connection.reason).toBe("GOAWAY 11");
  });

  test("if the connection ends before anything of it was written, and not if it was", async () => {
    const { connection, peer } = await connected();
    const written = post(connection);
    await peer.next(type.headers);
    const unwritten = post(connection);
    connection.destroy("the test ends it");
    expect((await written.result).end.isUnprocessed).toBe(false);
    expect((await unwritten.result).end.isUnprocessed).toBe(true);
    expect(connection.reason).toBe("the test ends it");
  });
});

describe("flow control", () => {
  const body = "x".repeat(100_000);

  test("holds a body back until the windows of stream and connection are open", async () => {
    const { connection, peer, request } = await asked(settings(), body);
    await expect.poll(() => peer.bodyBytes(1)).toBe(65_535);
    peer.send(frame(type.window, 0, 1, number(50_000)));
    const second = post(connection, {}, "y".repeat(10));
    await peer.next(type.headers);
    peer.send(frame(type.window, 0, 0, number(10_000)));
    await expect.poll(() => peer.bodyBytes(1)).toBe(75_535);
    expect(peer.bodyBytes(3)).toBe(0);
    peer.send(frame(type.window, 0, 0, number(50_000)));
    await expect.poll(() => [peer.bodyBytes(1), peer.bodyBytes(3)]).toEqual([100_000, 10]);
    const ends = peer.frames.filter((sent) => sent.type === type.data && sent.flags === 1);
    expect(ends.map(({ streamId }) => streamId).sort()).toEqual([1, 3]);
    expect(Math.max(...peer.frames.map(({ payload }) => payload.length))).toBeLessThanOrEqual(16_384);
    peer.send(ok(1), ok(3));
    expect(await request.result).toMatchObject({ status: 200 });
    expect(await second.result).toMatchObject({ status: 200 });
  });

  test("takes back what the settings take back, below zero", async () => {
    const { peer, request } = await asked(settings({ 4: 1_000 }), "x".repeat(1_500));
    await expect.poll(() => peer.bodyBytes(1)).toBe(1_000);
    // The window is now 100 - 1,000 = -900.
    peer.send(settings({ 4: 100 }), frame(type.window, 0, 1, number(900)));
    await peer.next(type.settings);
    peer.send(frame(type.ping, 0, 0, Buffer.alloc(8)));
    await peer.next(type.ping);
    expect(peer.bodyBytes(1)).toBe(1_000);
    peer.send(frame(type.window, 0, 1, number(1)));
    await expect.poll(() => peer.bodyBytes(1)).toBe(1_001);
    peer.send(settings({ 4: 1_000 }));
    await expect.poll(() => peer.bodyBytes(1)).toBe(1_500);
    peer.send(ok(1));
    expect(await request.result).toMatchObject({ status: 200 });
  });

  test("opens our windows again as responses come, and also for what nobody waits for", async () => {
    const { connection, peer, request } = await asked();
    const part = frame(type.data, 0, 1, Buffer.alloc(16_384));
    peer.send(response(), part, part);
    expect(await peer.next(type.window)).toMatchObject({ streamId: 1, payload: number(32_768) });
    request.stream.cancel();
    expect(await request.result).toMatchObject({ status: 200 });
    expect(await peer.next(type.rst)).toMatchObject({ streamId: 1, payload: number(code.cancel) });
    for (let sent = 0; sent < 64; sent += 1) peer.send(part);
    expect(await peer.next(type.window)).toMatchObject({ streamId: 0 });
    const next = post(connection);
    await peer.next(type.headers);
    peer.send(ok(3));
    expect(await next.result).toMatchObject({ status: 200 });
  });
});

describe("limits", () => {
  test("on streams change with the settings", async () => {
    const { limits, peer } = await connected(settings({ 3: 1 }));
    peer.send(settings({ 3: 1_000 }), settings({ 3: 0 }), settings({ 1: 0 }));
    await expect.poll(() => limits).toEqual([1, 1_000, 0, 0]);
    await expect
      .poll(() => peer.frames.filter((sent) => sent.type === type.settings && sent.flags === 1).length)
      .toBe(4);
  });

  test("on ids: after the last one, the connection takes no more", async () => {
    const { connection, peer } = await connected(settings(), 0x7fff_fffd);
    const requests = [post(connection), post(connection)];
    await peer.next(type.headers);
    expect(connection.isOpen).toBe(false);
    expect(() => post(connection)).toThrow();
    peer.send(ok(0x7fff_fffd), ok(0x7fff_ffff));
    for (const { result } of requests) expect(await result).toMatchObject({ status: 200 });
  });

  test.each<[string, Buffer]>([
    ["PING", frame(type.ping, 0, 0, Buffer.alloc(8))],
    ["SETTINGS", settings()],
    ["acknowledgements", frame(type.settings, 1, 0)],
    ["empty DATA", frame(type.data, 0, 1)],
    ["interim responses", frame(type.headers, 0x4, 3, literal(":status", "100"))],
    ["DATA of a stream that has ended", frame(type.data, 0, 5)],
    ["WINDOW_UPDATE", frame(type.window, 0, 1, number(1))],
    ["unknown frames", frame(0xfa, 0, 0)],
  ])("on frames that bring nothing: a flood of %s ends the connection", async (_, one) => {
    const { connection, peer, closed } = await connected();
    const [first] = [post(connection), post(connection), post(connection).stream.cancel()];
    await peer.next(type.headers);
    peer.send(response(1));
    const many = Buffer.concat(Array.from({ length: 1_000 }, () => one));
    for (let sent = 0; sent < 21; sent += 1) peer.send(many);
    const { payload } = await peer.next(type.goaway);
    expect(payload.readUInt32BE(4)).toBe(code.calm);
    await closed;
    expect(await first?.result).toMatchObject({ status: 200 });
  });

  test("on such frames begin anew with each response", async () => {
    const { connection, peer } = await connected();
    const pings = Buffer.concat(Array.from({ length: 2_500 }, () => frame(type.ping, 0, 0, Buffer.alloc(8))));
    for (let id = 1; id <= 11; id += 2) {
      const { result } = post(connection);
      peer.send(pings);
      await peer.next(type.headers);
      peer.send(ok(id));
      expect(await result).toMatchObject({ status: 200 });
    }
    expect(connection.isOpen).toBe(true);
  });

  test.each<[string, Buffer, number]>([
    ["small", Buffer.alloc(0), 65],
    ["large", Buffer.alloc(16_384, 0x88), 5],
  ])("on header blocks: too many %s CONTINUATION frames end the connection", async (_, part, count) => {
    const { peer, request, closed } = await asked();
    peer.send(frame(type.headers, 0, 1, status200));
    for (let sent = 0; sent < count; sent += 1) peer.send(frame(type.continuation, 0, 1, part));
    const { payload } = await peer.next(type.goaway);
    expect(payload.readUInt32BE(4)).toBe(code.calm);
    await closed;
    expect(await request.result).toMatchObject({ status: undefined });
  });
});

test("all requests of a turn go out in one write", async () => {
  const { connection, peer } = await connected();
  await peer.next(type.window);
  await peer.next(type.settings);
  const before = peer.reads;
  const requests = Array.from({ length: 20 }, () => post(connection, {}, "body"));
  await expect.poll(() => peer.frames.filter((sent) => sent.type === type.data).length).toBe(20);
  expect(peer.reads).toBe(before + 1);
  peer.send(...requests.map((_, index) => ok(index * 2 + 1)));
  for (const { result } of requests) expect(await result).toMatchObject({ status: 200 });
});

test("a header block of more than a frame is continued", async () => {
  const { connection, peer } = await connected();
  const { result } = post(connection, { own: ["x-long", "v".repeat(40_000)] });
  expect(await peer.next(type.headers)).toMatchObject({ flags: 0x1, payload: { length: 16_384 } });
  expect(await peer.next(type.continuation)).toMatchObject({ flags: 0, payload: { length: 16_384 } });
  expect(await peer.next(type.continuation)).toMatchObject({ flags: 0x4 });
  peer.send(ok(1));
  expect(await result).toMatchObject({ status: 200 });
});

test("PING is answered with its own bytes, and ours is noticed when it is answered", async () => {
  const { connection, peer } = await connected();
  peer.send(frame(type.ping, 0, 0, Buffer.from("12345678")));
  expect(await peer.next(type.ping)).toMatchObject({ flags: 1, payload: Buffer.from("12345678") });
  const answered = new Promise<void>((resolve) => connection.ping(resolve));
  const { payload, flags } = await peer.next(type.ping);
  expect(flags).toBe(0);
  peer.send(frame(type.ping, 1, 0, payload));
  await answered;
});

test("close waits for what is in flight, and says GOAWAY", async () => {
  const { connection, peer, request, closed } = await asked();
  connection.close();
  expect(() => post(connection)).toThrow();
  peer.send(ok(1));
  expect(await request.result).toMatchObject({ status: 200 });
  expect((await peer.next(type.goaway)).payload.readUInt32BE(4)).toBe(0);
  await closed;
});

test.each([
  ["a path without a slash", { path: "x" }],
  ["a path with a space", { path: "/a b" }],
  ["a path with a line break", { path: "/a\r\nb" }],
  ["a name in capitals", { own: ["X-A", "b"] }],
  ["a name with a line break", { own: ["x\na", "b"] }],
  ["a value with a line break", { own: ["x-a", "b\r\nc"] }],
  ["a value that is not of bytes", { own: ["x-a", "ж"] }],
  ["a pseudo-header of its own", { own: [":path", "/"] }],
  ["a pseudo-header behind a field", { shared: ["a", "b", ":method", "POST"] }],
])("a request with %s is not sent, and disturbs no other", async (_, head) => {
  const { connection, peer } = await connected();
  expect(() => post(connection, head)).toThrow(TypeError);
  const { result } = post(connection);
  expect(await peer.next(type.headers)).toMatchObject({ streamId: 1 });
  peer.send(ok(1));
  expect(await result).toMatchObject({ status: 200 });
});
