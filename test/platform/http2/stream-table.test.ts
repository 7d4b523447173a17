/** Streams are found by their ids, however long some of them last. */
import fc from "fast-check";
import { expect, test } from "vitest";
import type { StreamListener } from "../../../src/platform/http2/connection.ts";
import { Stream, StreamTable } from "../../../src/platform/http2/stream.ts";

const listener: StreamListener = { onResponse: () => {}, onData: () => {}, onEnd: () => {} };
const streamOf = (id: number): Stream => new Stream(id, listener, 0, () => {});

test("as a map would", () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 600 }), { maxLength: 700, size: "max" }), (lifetimes) => {
      const table = new StreamTable();
      const expected = new Map<number, Stream>();
      for (const [index, lifetime] of lifetimes.entries()) {
        const stream = streamOf(index * 2 + 1);
        table.add(stream);
        expected.set(stream.id, stream);
        const ended = expected.get((index - lifetime) * 2 + 1);
        if (ended) {
          expect(table.remove(ended)).toBe(expected.delete(ended.id));
          expect(table.remove(ended)).toBe(false);
        }
      }
      expect(table.size).toBe(expected.size);
      expect(table.all().sort((a, b) => a.id - b.id)).toEqual([...expected.values()]);
      for (let id = 1; id < lifetimes.length * 2 + 300; id += 2) expect(table.get(id)).toBe(expected.get(id));
    }),
    { numRuns: 30 },
  );
});
