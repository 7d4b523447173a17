import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { fittingJson, fittingText } from "../../../src/push/providers/content.ts";
import type { NotificationContent } from "../../../src/push/providers/provider.ts";
import { content } from "./providers-fixture.ts";

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

  test("is cut inside a grapheme that is too long by itself, and never inside a code point", () => {
    expect(fittingText(`a${"\u0301".repeat(20)}`, 10)).toBe("a\u0301\u0301\u0301…");
    expect(fittingText(`😀${"\u{1f3fd}".repeat(20)}`, 13)).toBe("😀\u{1f3fd}…");
  });

  test("makes the JSON around it fit, after the image has gone", () => {
    const write = ({ title, message, imageUrl }: NotificationContent) =>
      JSON.stringify({ title, message, imageUrl });
    const image = content().imageUrl;
    for (const max of [70, 100, 2000]) {
      const json = fittingJson(content({ message: "ß".repeat(2000) }), max, write);
      expect(Buffer.byteLength(json)).toBeLessThanOrEqual(max);
      expect(Buffer.byteLength(json)).toBeGreaterThan(max - 3);
      expect(json).not.toContain(image);
    }
    const fits = content({ message: "ß".repeat(20) });
    expect(fittingJson(fits, 130, write)).toBe(write(fits));
    expect(fittingJson(fits, 100, write)).toBe(write({ ...fits, imageUrl: undefined }));
  });
});
