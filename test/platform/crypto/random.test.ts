/** Buffered random bytes are returned once each, and returned bytes do not change. */
import { expect, test } from "vitest";
import { randomBytes } from "../../../src/platform/crypto/random.ts";

test("returns the requested number of bytes, across the ends of the buffer", () => {
  for (const size of [0, 1, 16, 32, 4095, 4096, 4096, 1, 4096]) expect(randomBytes(size)).toHaveLength(size);
});

test("gives no bytes twice, and leaves alone what it has given", () => {
  const given = Array.from({ length: 10_000 }, () => randomBytes(16));
  const asHex = given.map((bytes) => bytes.toString("hex"));
  expect(new Set(asHex).size).toBe(given.length);
  randomBytes(4096);
  expect(given.map((bytes) => bytes.toString("hex"))).toEqual(asHex);
  expect(asHex).not.toContain("00".repeat(16));
});

test("each bit is set about half of the time", () => {
  const counts = new Array<number>(8).fill(0);
  const bytes = Buffer.concat(Array.from({ length: 1000 }, () => randomBytes(32)));
  for (const byte of bytes)
    for (let bit = 0; bit < 8; bit += 1) counts[bit] = (counts[bit] ?? 0) + ((byte >> bit) & 1);
  // 32,000 throws: ten standard deviations are 894.
  for (const count of counts) expect(Math.abs(count - bytes.length / 2)).toBeLessThan(894);
});

test("refuses to give more than it fetches", () => {
  expect(() => randomBytes(4097)).toThrow(RangeError);
});
