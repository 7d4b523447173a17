/** Frames are the same however the bytes are cut. */
import fc from "fast-check";
import { expect, test } from "vitest";
import { FrameReader } from "../../../src/platform/http2/frames.ts";
import { frame } from "./raw-server.ts";

interface Seen {
  readonly type: number;
  readonly flags: number;
  readonly streamId: number;
  readonly payload: string;
}

function readInParts(bytes: Buffer, cuts: readonly number[]): Seen[] {
  const seen: Seen[] = [];
  const reader = new FrameReader((type, flags, streamId, payload) => {
    seen.push({ type, flags, streamId, payload: payload.toString("hex") });
  });
  const ends = [...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length].sort((a, b) => a - b);
  let start = 0;
  for (const end of ends) {
    reader.read(bytes.subarray(start, end));
    start = end;
  }
  return seen;
}

const frames = fc.array(
  fc.record({
    type: fc.integer({ min: 0, max: 255 }),
    flags: fc.integer({ min: 0, max: 255 }),
    streamId: fc.integer({ min: 0, max: 0x7fff_ffff }),
    payload: fc.uint8Array({ maxLength: 40 }),
  }),
  { minLength: 1, maxLength: 6 },
);

test("frames are read as they were written, wherever the bytes are cut", () => {
  fc.assert(
    fc.property(frames, fc.array(fc.nat(), { maxLength: 30 }), (list, cuts) => {
      const bytes = Buffer.concat(
        list.map(({ type, flags, streamId, payload }) => frame(type, flags, streamId, payload)),
      );
      const expected = list.map(({ payload, ...rest }) => ({
        ...rest,
        payload: Buffer.from(payload).toString("hex"),
      }));
      expect(readInParts(bytes, cuts)).toEqual(expected);
    }),
  );
});

test("the reserved bit before the stream's id is ignored", () => {
  const bytes = frame(0x8, 0, 5, Buffer.alloc(4));
  bytes[5] = 0x80;
  expect(readInParts(bytes, [])[0]?.streamId).toBe(5);
});

test("a frame of 16,384 bytes is read, and a longer one refused as soon as its length is known", () => {
  const longest = frame(0x0, 0, 1, Buffer.alloc(16_384, 7));
  expect(readInParts(longest, [3, 9, 5_000])[0]?.payload).toHaveLength(32_768);
  const tooLong = Buffer.from([0x00, 0x40, 0x01, 0, 0, 0, 0, 0, 1]);
  for (const cuts of [[], [2], [4, 7]]) {
    expect(() => readInParts(tooLong, cuts)).toThrow(
      expect.objectContaining({ name: "ConnectionError", code: 0x6 }),
    );
  }
});
