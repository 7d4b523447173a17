import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { fittingJson, fittingText } from "../../../src/push/providers/fitting-text.ts";

describe("a text that is shortened", () => {
  const inJson = (text: string): number => Buffer.byteLength(JSON.stringify(text)) - 2;

  test.each([
    ["hello", 5, "hello"],
    ["hello", 4, "h…"],
    ["hello world", 9, "hello…"],
    ['""""', 7, '""…'],
    ["äöü", 5, "ä…"],
    ["👩‍👩‍👧👩‍👩‍👧", 25, "👩‍👩‍👧…"],
    ["hello", 3, "…"],
    ["hello", 2, ""],
  ])("%j in %i bytes", (text, max, expected) => {
    expect(fittingText(text, max)).toBe(expected);
  });

  test("fits, whatever is in it", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), fc.nat(60), (text, max) => {
        const fitting = fittingText(text, max);
        expect(inJson(fitting)).toBeLessThanOrEqual(max);
        if (inJson(text) <= max) expect(fitting).toBe(text);
      }),
    );
  });

  test("makes the JSON around it fit", () => {
    const write = (message: string): string => JSON.stringify({ title: "t", message });
    for (const max of [40, 100, 2000]) {
      const json = fittingJson("ß".repeat(2000), max, write);
      expect(Buffer.byteLength(json)).toBeLessThanOrEqual(max);
      expect(Buffer.byteLength(json)).toBeGreaterThan(max - 3);
    }
  });
});
