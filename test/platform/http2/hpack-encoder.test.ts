/** Header blocks of requests: what is in them, and that nghttp2, which is in Node's server, reads the same. */
import { once } from "node:events";
import { createServer, type Http2Server, type ServerHttp2Session } from "node:http2";
import type { AddressInfo } from "node:net";
import fc from "fast-check";
import { beforeAll, describe, expect, test } from "vitest";
import { FrameConnection } from "../../../src/platform/http2/frame-connection.ts";
import { HpackEncoder } from "../../../src/platform/http2/hpack-encoder.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { follow, post } from "./client-fixture.ts";

const bearer = `Bearer ${"t".repeat(900)}`;
const target = [":method", "POST", ":scheme", "https", ":authority", "push.example.com"];
const shared = [...target, "content-type", "application/json", "authorization", bearer];
const sizeOf = (encoder: HpackEncoder, fields = shared): number =>
  encoder.encode({ path: "/p", shared: fields }).length;

describe("what requests share", () => {
  test("is sent once, and is then a byte for each field", () => {
    const encoder = new HpackEncoder();
    expect(sizeOf(encoder)).toBeGreaterThan(900);
    // The path, and five indices.
    const rest = 1 + 1 + 2 + 5;
    for (let time = 0; time < 3; time += 1) expect(sizeOf(encoder)).toBe(rest);
    expect(sizeOf(encoder, [...shared])).toBe(rest);
  });

  test("is sent once more when it changes, and the old one is not forgotten", () => {
    const encoder = new HpackEncoder();
    sizeOf(encoder);
    const renewed = [...shared.slice(0, -1), `Bearer ${"u".repeat(900)}`];
    expect(sizeOf(encoder, renewed)).toBeGreaterThan(900);
    expect(sizeOf(encoder, renewed)).toBeLessThan(15);
    expect(sizeOf(encoder)).toBeLessThan(15);
  });

  test("is sent each time if the peer's table has no room for it", () => {
    const encoder = new HpackEncoder();
    encoder.setPeerTableSize(500);
    sizeOf(encoder);
    expect(sizeOf(encoder)).toBeGreaterThan(900);
    expect(sizeOf(encoder)).toBeLessThan(930);
  });
});

test("what belongs to one request is never indexed, as its path", () => {
  const encoder = new HpackEncoder();
  const block = () => Buffer.from(encoder.encode({ path: "/p", shared: target, own: ["apns-id", "7"] }));
  block();
  // Never indexed (0x10): the name 4 of the static table; a name in full.
  expect(block().toString("latin1")).toBe("\x14\x02/p\x83\x87\xbe\x10\x07apns-id\x017");
});

test("a smaller table is announced, by its smallest size and its last", () => {
  const encoder = new HpackEncoder();
  sizeOf(encoder);
  encoder.setPeerTableSize(4_096);
  expect(encoder.encode({ path: "/p", shared: target })[0]).toBe(0x14);
  encoder.setPeerTableSize(100);
  encoder.setPeerTableSize(0);
  encoder.setPeerTableSize(60);
  // 0 and 60, with five bits of the first byte each.
  const announced = Buffer.from(encoder.encode({ path: "/p", shared: target }).subarray(0, 4));
  expect(announced).toEqual(Buffer.of(0x20, 0x3f, 60 - 31, 0x14));
  encoder.setPeerTableSize(65_536);
  const most = Buffer.from(encoder.encode({ path: "/p", shared: target }).subarray(0, 4));
  expect(most).toEqual(Buffer.of(0x3f, 0xe1, 0x1f, 0x14));
});

describe("nghttp2", () => {
  let server: Http2Server;
  let session: ServerHttp2Session;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    server = createServer();
    cleanup.defer(() => new Promise((resolve) => server.close(() => resolve())));
    server.on("session", (opened) => {
      session = opened;
    });
    server.on("stream", (stream, _headers, _flags, rawHeaders) => {
      stream.respond({ ":status": 200 });
      stream.end(JSON.stringify(rawHeaders));
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  });

  const value = fc.oneof(
    fc.string({ unit: fc.constantFrom(..."aZ9~é ÿ,"), maxLength: 40 }).map((text) => text.trim()),
    fc.integer({ min: 100, max: 5_000 }).map((length) => "v".repeat(length)),
  );
  const step = fc.oneof(
    { weight: 1, arbitrary: fc.record({ tableSize: fc.constantFrom(0, 33, 60, 200, 1_100, 4_096, 65_536) }) },
    { weight: 5, arbitrary: fc.record({ which: fc.nat(3), own: value }) },
  );

  test("reads each request as it was meant, whatever the size of its table is meanwhile", async () => {
    const { port } = server.address() as AddressInfo;
    await fc.assert(
      fc.asyncProperty(
        fc.array(value, { minLength: 4, maxLength: 4 }),
        fc.array(step, { maxLength: 25 }),
        async (values, steps) => {
          const heads = values.map((text) => [
            ...[":method", "POST", ":scheme", "http", ":authority", "test"],
            ...["x-shared", text, "authorization", `T${text}`],
          ]);
          const { connection, opened, closed } = follow(
            (...args) => new FrameConnection(...args),
            `http://127.0.0.1:${port}`,
          );
          await opened;
          for (const item of steps) {
            if ("tableSize" in item) {
              session.settings({ headerTableSize: item.tableSize });
              await once(session, "localSettings");
              continue;
            }
            const head = heads[item.which] ?? [];
            const path = `/${item.which}?${encodeURIComponent(item.own)}`;
            const { body } = await post(connection, { path, shared: head, own: ["x-own", item.own] }).result;
            expect(JSON.parse(body)).toEqual([":path", path, ...head, "x-own", item.own]);
          }
          connection.close();
          await closed;
        },
      ),
      { numRuns: 40 },
    );
  });
});
