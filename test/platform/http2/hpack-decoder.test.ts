/** Header blocks of responses, against the examples of RFC 7541 and against what is broken. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { decodeHeaderBlock } from "../../../src/platform/http2/hpack-decoder.ts";
import { encodeHuffman, fromBits } from "./huffman-encoding.ts";

const hex = (text: string): Buffer => Buffer.from(text.replaceAll(/\s/g, ""), "hex");
const brokenBlock = expect.objectContaining({ name: "ConnectionError", code: 0x9 });
/** A literal without indexing whose name is `a` and whose value has this code. */
const withHuffmanValue = (code: Buffer): Buffer =>
  Buffer.concat([Buffer.of(0x00, 0x01, 0x61), huffmanLength(code.length), code]);

function huffmanLength(length: number): Buffer {
  if (length < 127) return Buffer.of(0x80 | length);
  const rest = length - 127;
  return Buffer.of(0xff, (rest % 128) | 0x80, Math.floor(rest / 128));
}

describe("the examples of RFC 7541 appendix C", () => {
  test.each([
    [
      "C.2.1, a literal with indexing",
      "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
      ["custom-key", "custom-header"],
    ],
    ["C.2.2, without indexing", "040c 2f73 616d 706c 652f 7061 7468", [":path", "/sample/path"]],
    ["C.2.3, never indexed", "1008 7061 7373 776f 7264 0673 6563 7265 74", ["password", "secret"]],
    ["C.2.4, indexed", "82", [":method", "GET"]],
    [
      "C.3.1, a request",
      "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
      [":method", "GET", ":scheme", "http", ":path", "/", ":authority", "www.example.com"],
    ],
    [
      "C.4.1, a request with Huffman",
      "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
      [":method", "GET", ":scheme", "http", ":path", "/", ":authority", "www.example.com"],
    ],
    [
      "C.5.1, a response",
      `4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32
       3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d`,
      [
        ...[":status", "302", "cache-control", "private", "date", "Mon, 21 Oct 2013 20:13:21 GMT"],
        ...["location", "https://www.example.com"],
      ],
    ],
    [
      "C.6.1, a response with Huffman",
      `4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad
       1718 63c7 8f0b 97c8 e9ae 82ae 43d3`,
      [
        ...[":status", "302", "cache-control", "private", "date", "Mon, 21 Oct 2013 20:13:21 GMT"],
        ...["location", "https://www.example.com"],
      ],
    ],
  ])("%s", (_, block, fields) => {
    expect(decodeHeaderBlock(hex(block))).toEqual(fields);
  });

  test.each([
    ["C.3.2, as it needs the dynamic table", "8286 84be 5808 6e6f 2d63 6163 6865"],
    ["C.6.2, as it needs the dynamic table", "4883 640e ffc1 c0bf"],
  ])("not %s", (_, block) => {
    expect(() => decodeHeaderBlock(hex(block))).toThrow(brokenBlock);
  });

  test("C.1.2, the integer 1337", () => {
    const value = "x".repeat(1337 + 96);
    // There with five bits of the first byte, 31 + 0x9a 0x0a; a string's length has seven, so it is 96 more.
    const block = Buffer.concat([Buffer.of(0x00, 0x01, 0x61, 0x7f, 0x9a, 0x0a), Buffer.from(value)]);
    expect(decodeHeaderBlock(block)).toEqual(["a", value]);
  });
});

describe("a string in Huffman's code", () => {
  test("may consist of any bytes", () => {
    const all = Array.from({ length: 256 }, (_, byte) => byte);
    expect(decodeHeaderBlock(withHuffmanValue(encodeHuffman(all)))[1]).toBe(
      Buffer.from(all).toString("latin1"),
    );
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
        const [, value = ""] = decodeHeaderBlock(withHuffmanValue(encodeHuffman(bytes)));
        expect(Buffer.from(value, "latin1").equals(Buffer.from(bytes))).toBe(true);
      }),
    );
  });

  test.each([
    ["is padded with zeros", encodeHuffman(Buffer.from("a"), "0")],
    ["is padded with a whole byte", Buffer.concat([encodeHuffman(Buffer.from("a")), Buffer.of(0xff)])],
    ["is a whole byte of padding", Buffer.of(0xff)],
    ["holds the end-of-string symbol", fromBits("1".repeat(30))],
    ["ends inside a code", fromBits("11111110")],
  ])("that %s is broken", (_, code) => {
    expect(() => decodeHeaderBlock(withHuffmanValue(code))).toThrow(brokenBlock);
  });
});

describe("a block is broken", () => {
  test.each([
    ["by index 0", "80"],
    ["by an index behind the static table", "be"],
    ["by a name's index behind the static table", "7f 00 0161"],
    ["by a string that is cut off", "00 05 6162"],
    ["by a field that is cut off", "00 01 61"],
    ["by an integer that is cut off", "ff"],
    ["by an integer without an end", "ff ffffffffffffff"],
    ["by a length that is too large", "00 7f ffffff7f"],
    ["by a dynamic table that we did not announce", "3f e11f 88"],
    ["by a table size within it", "88 20"],
  ])("%s", (_, block) => {
    expect(() => decodeHeaderBlock(hex(block))).toThrow(brokenBlock);
  });

  test("or not, but it never does anything else", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => {
        try {
          expect(decodeHeaderBlock(Buffer.from(bytes)).length % 2).toBe(0);
        } catch (error) {
          expect(error).toMatchObject({ name: expect.stringMatching(/^(Connection|Stream)Error$/) });
        }
      }),
      { numRuns: 2_000 },
    );
  });
});

test("sizes of a table of 0 may come first", () => {
  expect(decodeHeaderBlock(hex("20 20 88"))).toEqual([":status", "200"]);
});

test.each([
  ["more fields than 128", Buffer.alloc(129, 0x88), Buffer.alloc(128, 0x88)],
  [
    "more than 32 KiB",
    Buffer.concat(Array.from({ length: 33 }, () => literalOf(1_024))),
    Buffer.concat(Array.from({ length: 29 }, () => literalOf(1_024))),
  ],
])("%s are refused, which concerns the stream alone", (_, refused, accepted) => {
  expect(() => decodeHeaderBlock(refused)).toThrow(
    expect.objectContaining({ name: "StreamError", code: 0xb }),
  );
  expect(decodeHeaderBlock(accepted).length).toBeGreaterThan(0);
});

function literalOf(length: number): Buffer {
  const rest = length - 127;
  const header = Buffer.of(0x00, 0x01, 0x61, 0x7f, (rest % 128) | 0x80, Math.floor(rest / 128));
  return Buffer.concat([header, Buffer.alloc(length, "x")]);
}
