/** Names of images: which are taken, that the document says so, and that none leads out of the base URL. */
import { Ajv2020 } from "ajv/dist/2020.js";
import { describe, expect, test } from "vitest";
import { contractTexts } from "../../../src/platform/openapi/document.ts";
import { imageNameProblem, imageUrl } from "../../../src/push/providers/content.ts";
import { shortTexts } from "../../support/short-texts.ts";

const base = "https://images.example.com/push";

const ajv = new Ajv2020({ strict: false, validateFormats: false });
ajv.addSchema(JSON.parse(contractTexts("push-orchestration").json), "document");
const isInDocument = ajv.compile({
  $ref: "document#/components/schemas/PushNotification/properties/image",
});

/** What has a meaning in names, paths or URLs, and one of what has none. */
const pieces = [
  "a",
  "1",
  ".",
  "/",
  ":",
  "%",
  " ",
  "\\",
  "+",
  "?",
  "#",
  "é",
  "😀",
  "\n",
  "\x00",
  "\x7f",
  "\x9f",
];

describe("the URL of an image", () => {
  test.each([
    ["summer.jpg", "/summer.jpg"],
    ["2025/07/summer_sale-1.jpg", "/2025/07/summer_sale-1.jpg"],
    [".hidden.png", "/.hidden.png"],
    [
      "летняя распродажа.jpg",
      "/%D0%BB%D0%B5%D1%82%D0%BD%D1%8F%D1%8F%20%D1%80%D0%B0%D1%81%D0%BF%D1%80%D0%BE%D0%B4%D0%B0%D0%B6%D0%B0.jpg",
    ],
    ["夏/セール.png", "/%E5%A4%8F/%E3%82%BB%E3%83%BC%E3%83%AB.png"],
    ["a b?c#d&e=f%2f.jpg", "/a%20b%3Fc%23d%26e%3Df%252f.jpg"],
    ["a\\b.jpg", "/a%5Cb.jpg"],
    ["1: summer.jpg", "/1%3A%20summer.jpg"],
  ])("%s", (name, path) => {
    expect(imageUrl(base, name)).toBe(base + path);
  });

  test.each([
    ...["../secret.jpg", "a/../../b.jpg", "a/./b.jpg", "/a.jpg", "a//b.jpg", "a/", "", ".", "..", "a..b"],
    ...[
      "https://evil.example/x",
      "//evil.example/x",
      "data:image/png;base64,AAAA",
      "c:a.jpg",
      "a\r\nb",
      "a\0",
    ],
    ...["a\u0085b", "a\ud83d", "é".repeat(167), "😀".repeat(84)],
  ])("of what is no name is none: %j", (name) => {
    expect(imageNameProblem(name)).toBeDefined();
    expect(imageUrl(base, name)).toBeUndefined();
  });

  test("is none without a base, or without a name", () => {
    expect(imageUrl(undefined, "a.jpg")).toBeUndefined();
    expect(imageUrl(base, undefined)).toBeUndefined();
  });

  test("is below the base and has the name, for every short name; the document takes the same names", () => {
    let taken = 0;
    for (const name of shortTexts(pieces, 4)) {
      const url = imageUrl(base, name);
      // In requests the empty name means no image.
      if (isInDocument(name) !== (url !== undefined || name === "")) {
        expect.unreachable(`${JSON.stringify(name)} ${imageNameProblem(name)}`);
      }
      if (url === undefined) continue;
      taken += 1;
      const { origin, pathname, search, hash } = new URL(url);
      const parts = pathname.split("/").slice(2).map(decodeURIComponent);
      if (`${origin}${pathname}` !== url || search + hash !== "" || parts.join("/") !== name) {
        expect.unreachable(`${JSON.stringify(name)} became ${url}`);
      }
    }
    expect(taken).toBeGreaterThan(20_000);
  });

  test("has at most 1000 bytes below the base, as the document says", () => {
    for (const name of ["a".repeat(255), "é".repeat(166), "€".repeat(111), "😀".repeat(83)]) {
      expect(imageUrl(base, name)?.length).toBeLessThanOrEqual(base.length + 1 + 1000);
    }
  });
});
