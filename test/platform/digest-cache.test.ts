/** What is remembered is what was added; what gives way is forgotten, never mistaken for something else. */
import { hash } from "node:crypto";
import { expect, test } from "vitest";
import { DigestCache } from "../../src/platform/digest-cache.ts";

const digestOf = (text: string) => hash("sha256", text, "binary");

test("knows what was added, and nothing else", () => {
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

test("finds room for six times as many as it has sets, nearly always", () => {
  const cache = new DigestCache(4096);
  const added = Array.from({ length: 6 * 4096 }, (_, index) => digestOf(`${index}`));
  for (const digest of added) cache.add(digest);
  expect(added.filter((digest) => cache.has(digest)).length).toBeGreaterThan(6 * 4096 * 0.999);
});

test("takes no more room for a digest that is added again", () => {
  const cache = new DigestCache(1);
  const [first = "", ...more] = [..."abcdefghijklmnop"].map(digestOf);
  for (let time = 0; time < 10; time += 1) cache.add(first);
  for (const digest of more) cache.add(digest);
  expect([first, ...more].map((digest) => cache.has(digest))).toEqual(Array(16).fill(true));
});

test("without room, the newest is known and an older one forgotten", () => {
  const cache = new DigestCache(1);
  const digests = Array.from({ length: 100 }, (_, index) => digestOf(`${index}`));
  for (const [index, digest] of digests.entries()) {
    cache.add(digest);
    expect(cache.has(digest)).toBe(true);
    const known = digests.slice(0, index + 1).filter((one) => cache.has(one));
    expect(known).toHaveLength(Math.min(16, index + 1));
  }
});

test("tells digests apart by each of their first 16 bytes", () => {
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
