/** What is remembered is what was added; what gives way is forgotten, never mistaken for something else. */
import { hash } from "node:crypto";
import { expect, test } from "vitest";
import { DigestCache } from "../../../src/platform/crypto/digest-cache.ts";

const digestOf = (text: string) => hash("sha256", text, "binary");

test("has the digests that were added, and no others", () => {
  const cache = new DigestCache(1024);
  const added = Array.from({ length: 1000 }, (_, index) => digestOf(`added ${index}`));
  for (const digest of added) {
    expect(cache.has(digest)).toBe(false);
    cache.add(digest);
    expect(cache.has(digest)).toBe(true);
  }
  const others = Array.from({ length: 10_000 }, (_, index) => digestOf(`other ${index}`));
  expect(others.filter((digest) => cache.has(digest))).toEqual([]);
});

/** What is left of so many that are added one after another. */
function newestOf(count: number, newest: number): number {
  const cache = new DigestCache(4096);
  const added = Array.from({ length: count }, (_, index) => digestOf(`${index}`));
  for (const digest of added) cache.add(digest);
  return added.slice(-newest).filter((digest) => cache.has(digest)).length;
}

test.each([1, 10])("has the newest six times as many as it has sets, after %i times as many", (times) => {
  const newest = 6 * 4096;
  expect(newestOf(times * newest, newest)).toBeGreaterThan(newest * 0.9998);
});

test("takes no more room for a digest that is added again", () => {
  const cache = new DigestCache(1);
  const [first = "", ...more] = [..."abcdefghijklmnop"].map(digestOf);
  for (let time = 0; time < 10; time += 1) cache.add(first);
  for (const digest of more) cache.add(digest);
  expect([first, ...more].map((digest) => cache.has(digest))).toEqual(Array(16).fill(true));
});

test("without room, the oldest is forgotten", () => {
  const cache = new DigestCache(1);
  const digests = Array.from({ length: 100 }, (_, index) => digestOf(`${index}`));
  for (const [index, digest] of digests.entries()) {
    cache.add(digest);
    const known = digests.filter((one) => cache.has(one));
    expect(known).toEqual(digests.slice(Math.max(0, index - 15), index + 1));
  }
});

test("distinguishes digests by each of their first 16 bytes", () => {
  const cache = new DigestCache(1);
  const digest = digestOf("one");
  cache.add(digest);
  for (let at = 0; at < 16; at += 1) {
    const flipped = String.fromCharCode(digest.charCodeAt(at) ^ 0x80);
    expect(cache.has(digest.slice(0, at) + flipped + digest.slice(at + 1))).toBe(false);
  }
});

test("a size that is no power of two is a mistake", () => {
  expect(() => new DigestCache(1000)).toThrow(RangeError);
});
