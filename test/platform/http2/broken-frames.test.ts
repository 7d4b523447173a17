/** Our client against a server that does what RFC 9113 forbids. */
import { describe, expect, test } from "vitest";
import { post } from "./client-fixture.ts";
import { frame, number, ok, settings } from "./raw-server.ts";
import {
  asked,
  closeAfterEach,
  code,
  connected,
  connecting,
  literal,
  response,
  status200,
  type,
} from "./wire-fixture.ts";

closeAfterEach();

describe("a server that breaks the protocol loses the connection", () => {
  const cases: [string, Buffer[], number][] = [
    ["with DATA on stream 0", [frame(type.data, 0, 0)], code.protocol],
    ["with HEADERS on stream 0", [frame(type.headers, 0x5, 0, status200)], code.protocol],
    ["with HEADERS on a stream of its own", [frame(type.headers, 0x5, 2, status200)], code.protocol],
    ["with HEADERS on a stream that is to come", [ok(3)], code.protocol],
    ["with RST_STREAM on stream 0", [frame(type.rst, 0, 0, number(8))], code.protocol],
    ["with RST_STREAM on a stream that is to come", [frame(type.rst, 0, 3, number(8))], code.protocol],
    ["with RST_STREAM of another size", [frame(type.rst, 0, 1, Buffer.alloc(5))], code.frameSize],
    ["with SETTINGS on a stream", [frame(type.settings, 0, 1)], code.protocol],
    ["with SETTINGS of another size", [frame(type.settings, 0, 0, Buffer.alloc(5))], code.frameSize],
    ["with SETTINGS that acknowledge and set", [frame(type.settings, 1, 0, Buffer.alloc(6))], code.frameSize],
    ["with a window of 2^31", [settings({ 4: 0x8000_0000 })], code.flowControl],
    ["with frames of 16,383 bytes", [settings({ 5: 16_383 })], code.protocol],
    ["with frames of 2^24 bytes", [settings({ 5: 0x100_0000 })], code.protocol],
    ["by enabling push", [settings({ 2: 1 })], code.protocol],
    [
      "with PUSH_PROMISE",
      [frame(type.push, 0x4, 1, Buffer.concat([number(2), Buffer.of(0x82)]))],
      code.protocol,
    ],
    ["with PING on a stream", [frame(type.ping, 0, 1, Buffer.alloc(8))], code.protocol],
    ["with PING of another size", [frame(type.ping, 0, 0, Buffer.alloc(7))], code.frameSize],
    ["with GOAWAY on a stream", [frame(type.goaway, 0, 1, Buffer.alloc(8))], code.protocol],
    ["with GOAWAY that is too short", [frame(type.goaway, 0, 0, Buffer.alloc(7))], code.frameSize],
    ["with WINDOW_UPDATE of 0", [frame(type.window, 0, 0, number(0))], code.protocol],
    ["with WINDOW_UPDATE of another size", [frame(type.window, 0, 0, Buffer.alloc(3))], code.frameSize],
    [
      "with a connection's window that is too large",
      [frame(type.window, 0, 0, number(0x7fff_ffff))],
      code.flowControl,
    ],
    [
      "with settings that make a stream's window too large",
      [frame(type.window, 0, 1, number(0x7fff_ffff - 65_535)), settings({ 4: 65_536 })],
      code.flowControl,
    ],
    ["with CONTINUATION from nowhere", [frame(type.continuation, 0x4, 1, status200)], code.protocol],
    [
      "with CONTINUATION of another stream",
      [frame(type.headers, 0x1, 1), frame(type.continuation, 0x4, 3, status200)],
      code.protocol,
    ],
    [
      "with a frame within a header block",
      [frame(type.headers, 0x1, 1), frame(type.ping, 0, 0, Buffer.alloc(8))],
      code.protocol,
    ],
    [
      "with an unknown frame within a header block",
      [frame(type.headers, 0x1, 1), frame(0xfa, 0, 0)],
      code.protocol,
    ],
    ["with a broken header block", [frame(type.headers, 0x5, 1, Buffer.of(0x80))], code.compression],
    [
      "with a dynamic table",
      [frame(type.headers, 0x5, 1, Buffer.of(0x3f, 0xe1, 0x1f, 0x88))],
      code.compression,
    ],
    ["with more padding than content", [response(), frame(type.data, 0x8, 1, Buffer.of(1))], code.protocol],
    ["with a padded frame that is empty", [response(), frame(type.data, 0x8, 1)], code.frameSize],
    ["with a priority that is cut off", [frame(type.headers, 0x24, 1, Buffer.alloc(4))], code.frameSize],
    ["with a frame that is too long", [Buffer.from([0x00, 0x40, 0x01, 0, 0, 0, 0, 0, 1])], code.frameSize],
  ];
  test.each(cases)("%s", async (_, frames, error) => {
    const { peer, request, closed, connection } = await asked();
    peer.send(...frames);
    const { payload } = await peer.next(type.goaway);
    expect(payload.readUInt32BE(4)).toBe(error);
    await closed;
    expect(connection.isOpen).toBe(false);
    expect(connection.reason).toMatch(/^HTTP\/2: /);
    // The server may have processed it.
    expect((await request.result).end).toMatchObject({ resetCode: undefined, isUnprocessed: false });
  });

  test("and the requests do not wait until it has read why", async () => {
    const { connection, peer } = await connected(settings({ 4: 0x7fff_ffff }));
    peer.send(frame(type.window, 0, 0, number(0x7fff_0000)));
    peer.send(frame(type.ping, 0, 0, Buffer.alloc(8)));
    await peer.next(type.ping);
    peer.socket.pause();
    // More than the system keeps for a peer that does not read.
    const { result } = post(connection, {}, Buffer.alloc(64 * 1_048_576));
    peer.send(frame(type.data, 0, 0));
    expect(await result).toMatchObject({ status: undefined, end: { isUnprocessed: false } });
    expect(connection.isOpen).toBe(false);
  });

  test.each<[string, Buffer]>([
    ["HTTP/1.1", Buffer.from("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")],
    ["another first frame", frame(type.ping, 0, 0, Buffer.alloc(8))],
    ["an acknowledgement first", frame(type.settings, 1, 0)],
  ])("with %s, which is no HTTP/2", async (_, bytes) => {
    const { connection, closed, peer } = await connecting();
    peer.send(bytes);
    await closed;
    expect(connection.reason).toBe("the peer speaks no HTTP/2");
  });
});

describe("a response that is not one ends its stream, and no other", () => {
  test.each<[string, Buffer[], number]>([
    ["a body without a response", [frame(type.data, 0x1, 1, Buffer.from("x"))], code.protocol],
    ["no status", [frame(type.headers, 0x5, 1, literal("x-a", "b"))], code.protocol],
    ["no fields", [frame(type.headers, 0x5, 1)], code.protocol],
    ["a status of letters", [frame(type.headers, 0x5, 1, literal(":status", "2oo"))], code.protocol],
    ["a status of 99", [frame(type.headers, 0x5, 1, literal(":status", "099"))], code.protocol],
    ["the status 101", [frame(type.headers, 0x4, 1, literal(":status", "101"))], code.protocol],
    [
      "an interim response that ends",
      [frame(type.headers, 0x5, 1, literal(":status", "100"))],
      code.protocol,
    ],
    ["two statuses", [frame(type.headers, 0x5, 1, Buffer.of(0x88, 0x88))], code.protocol],
    [
      "a status behind a field",
      [frame(type.headers, 0x5, 1, Buffer.concat([literal("a", "b"), status200]))],
      1,
    ],
    ["another pseudo-header", [frame(type.headers, 0x5, 1, Buffer.of(0x88, 0x84))], code.protocol],
    [
      "a name in capitals",
      [frame(type.headers, 0x5, 1, Buffer.concat([status200, literal("X-A", "b")]))],
      code.protocol,
    ],
    [
      "an empty name",
      [frame(type.headers, 0x5, 1, Buffer.concat([status200, literal("", "b")]))],
      code.protocol,
    ],
    [
      "a field of HTTP/1.1",
      [frame(type.headers, 0x5, 1, Buffer.concat([status200, literal("connection", "close")]))],
      code.protocol,
    ],
    [
      "a line break in a value",
      [frame(type.headers, 0x5, 1, Buffer.concat([status200, literal("a", "b\r\nc")]))],
      code.protocol,
    ],
    [
      "too many fields",
      [
        frame(
          type.headers,
          0x5,
          1,
          Buffer.concat([status200, ...Array.from({ length: 130 }, () => literal("a", "b"))]),
        ),
      ],
      code.calm,
    ],
    ["WINDOW_UPDATE of 0", [frame(type.window, 0, 1, number(0))], code.protocol],
    ["a window that is too large", [frame(type.window, 0, 1, number(0x7fff_ffff))], code.flowControl],
  ])("%s", async (_, frames, error) => {
    const { connection, peer, request } = await asked();
    peer.send(...frames);
    expect(await peer.next(type.rst)).toMatchObject({ streamId: 1, payload: number(error) });
    expect(await request.result).toMatchObject({ status: undefined, end: { isUnprocessed: false } });
    const next = post(connection);
    await peer.next(type.headers);
    peer.send(ok(3));
    expect(await next.result).toMatchObject({ status: 200 });
  });

  const sized = (bytes: string, flags = 0x4) =>
    frame(type.headers, flags, 1, Buffer.concat([status200, literal("content-length", bytes)]));
  const data = (flags: number) => frame(type.data, flags, 1, Buffer.from("fine"));
  test.each<[string, Buffer[]]>([
    ["trailers that do not end it", [response(), frame(type.headers, 0x4, 1, literal("a", "b"))]],
    ["a second status", [response(), frame(type.headers, 0x5, 1, status200)]],
    ["less of a body than announced", [sized("5"), data(0x1)]],
    ["no body where one was announced", [sized("5", 0x5)]],
    ["more of a body than announced", [sized("7"), data(0), data(0)]],
    [
      "less of a body than announced, and trailers",
      [sized("5"), data(0), frame(type.headers, 0x5, 1, literal("a", "b"))],
    ],
  ])("%s, after its status: the response is not complete", async (_, frames) => {
    const { peer, request } = await asked();
    peer.send(...frames);
    expect(await peer.next(type.rst)).toMatchObject({ streamId: 1, payload: number(code.protocol) });
    expect(await request.result).toMatchObject({ status: 200, end: { isComplete: false } });
  });

  test.each<[string, Buffer]>([
    ["of its very size", Buffer.concat([sized("8"), data(0), data(0x1)])],
    [
      "that its status has none of",
      frame(type.headers, 0x5, 1, Buffer.concat([Buffer.of(0x8b), literal("content-length", "5")])),
    ],
  ])("but not for a body %s", async (_, bytes) => {
    const { peer, request } = await asked();
    peer.send(bytes);
    expect(await request.result).toMatchObject({ end: { isComplete: true } });
  });

  test("a size that is no number", async () => {
    const { peer, request } = await asked();
    peer.send(sized("4x"), data(0x1));
    expect(await peer.next(type.rst)).toMatchObject({ streamId: 1, payload: number(code.protocol) });
    expect(await request.result).toMatchObject({ status: undefined });
  });
});
