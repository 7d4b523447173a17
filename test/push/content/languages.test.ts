/** Which text a reader gets, and which devices a filter's language finds: by whole subtags, over the likely script. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  acceptedLanguages,
  canonicalLanguage,
  createLookup,
  languageRange,
  languageSpan,
} from "../../../src/push/content/languages.ts";

describe("the canonical form of a tag", () => {
  test.each([
    ["de", "de"],
    ["DE_at", "de-AT"],
    ["iw", "he"],
    ["in_ID", "id-ID"],
    ["zh-hant-tw", "zh-Hant-TW"],
    ["de-DE-1996", "de-DE-1996"],
    ["ar-EG-u-nu-latn", "ar-EG"],
    ["en_US_POSIX", "en-US"],
    ["sh", "sr-Latn"],
  ])("of %s is %s", (tag, canonical) => {
    expect(canonicalLanguage(tag)).toBe(canonical);
  });

  test.each(["", "-", "d", "jp", "cz", "xx", "english", "und", "de-", "de--AT", "x-own", "de AT", "d\u00eb"])(
    "%j has none",
    (tag) => {
      expect(canonicalLanguage(tag)).toBeUndefined();
    },
  );
});

describe("a reader", () => {
  test.each([
    ["de-AT", ["de-AT", "de", "en"], "de-AT"],
    ["de-AT", ["de", "en"], "de"],
    ["de-AT", ["de-DE", "en"], undefined],
    ["de", ["de-AT"], undefined],
    ["zh-TW", ["zh-Hans", "zh-Hant"], "zh-Hant"],
    ["zh-TW", ["zh-Hans", "zh"], undefined],
    ["zh-TW", ["zh-Hant-TW", "zh-Hant"], "zh-Hant-TW"],
    ["zh-Hant-TW", ["zh-TW", "zh-Hant"], "zh-TW"],
    ["zh-CN", ["zh-Hant", "zh"], "zh"],
    ["zh-SG", ["zh-Hans", "zh-Hant"], "zh-Hans"],
    ["sr-Latn-RS", ["sr", "sr-Latn"], "sr-Latn"],
    ["sr-RS", ["sr-Latn", "sr"], "sr"],
    ["sr-ME", ["sr", "sr-Latn"], "sr-Latn"],
    ["pt-BR", ["pt", "pt-PT"], "pt"],
    ["de-CH-1996", ["de", "de-CH"], "de-CH"],
    ["den", ["de"], undefined],
  ])("of %s who has the choice of %j gets %s", (wanted, tags, expected) => {
    expect(createLookup(tags)(wanted)).toBe(expected);
    expect(createLookup(tags)(languageRange(wanted)), "by its range").toBe(expected);
  });
});

/** The tags that may occur side by side: prefixes of each other, and neighbours in the order of bytes. */
const tag = fc
  .tuple(
    fc.constantFrom("de", "den", "zh", "sr", "en", "fil"),
    fc.constantFrom("", "-Latn", "-Hans", "-Hant", "-Cyrl"),
    fc.constantFrom("", "-AT", "-TW", "-CN", "-RS", "-ME", "-419"),
    fc.constantFrom("", "-1996"),
  )
  .map((parts) => canonicalLanguage(parts.join("")) ?? "de");

test("a filter finds by comparing bytes what a look-up of its language alone finds", () => {
  fc.assert(
    fc.property(tag, tag, (filter, device) => {
      const { from, before } = languageSpan(filter);
      const range = Buffer.from(languageRange(device));
      const isInSpan = range.compare(Buffer.from(from)) >= 0 && range.compare(Buffer.from(before)) < 0;
      expect(isInSpan).toBe(createLookup([filter])(device) !== undefined);
      expect(languageRange(languageRange(device))).toBe(languageRange(device));
    }),
  );
});

test.each([
  ["de-AT,de;q=0.9,en;q=0.8", ["de-AT", "de", "en"]],
  ["en;q=0.1, fr", ["fr", "en"]],
  ["*", []],
  ["de;q=0, *;q=0.5", []],
  ["de;Q=0.2, iw ; q=0.3", ["he", "de"]],
  ["no language, ;;,q=1", []],
])("Accept-Language %j wants %j", (header, languages) => {
  expect(acceptedLanguages(header)).toEqual(languages);
});
