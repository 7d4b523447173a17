/** What a notification says to one reader. */
import { describe, expect, test } from "vitest";
import { createTextLookup } from "../../../src/push/content/texts.ts";
import {
  fillText,
  longestVariables,
  missingVariables,
  variableNames,
} from "../../../src/push/content/variables.ts";

const texts = {
  de: { title: "Hallo {{name}}", message: "Du hast {{ count }} Punkte" },
  en: { title: "Hello {{name}}", message: "You have {{count}} points" },
};
const variables = { name: "Ada", count: "{{name}}" };

describe("the text for a reader", () => {
  test.each([
    [["de-AT"], "de"],
    [["fr"], "en"],
    [["fr", "de", "en"], "de"],
    [[], "en"],
  ])("who wants %j is in %s", (wanted, language) => {
    expect(createTextLookup({ texts, defaultLanguage: "en" })(wanted)).toBe(language);
  });

  test("is the only one, whatever he wants", () => {
    expect(createTextLookup({ texts: { de: texts.de } })(["fr"])).toBe("de");
  });

  test("has his values, and does not look into them", () => {
    expect(fillText(texts.de, variables)).toEqual({ title: "Hallo Ada", message: "Du hast {{name}} Punkte" });
  });

  test("keeps names that nobody has given, and those of Object's own members", () => {
    const odd = { title: "{{constructor}}", message: "{{1}} {{}} {{a b}} {{name}}" };
    expect(fillText(odd, { name: "$&" })).toEqual({
      title: "{{constructor}}",
      message: "{{1}} {{}} {{a b}} $&",
    });
  });

  test("does not exist in a silent notification", () => {
    expect(createTextLookup({ texts: {} })(["de"])).toBeUndefined();
  });
});

test("the variables of texts are those of all languages, and a recipient lacks some", () => {
  const names = variableNames(Object.values(texts));
  expect([...names]).toEqual(["name", "count"]);
  expect(missingVariables(names, { name: "Ada", toString: "" })).toEqual(["count"]);
  expect(missingVariables(new Set(["toString"]), {})).toEqual(["toString"]);
});

test("the longest values are measured as payloads have them", () => {
  const all = [{ a: "xxx", b: "" }, { a: "ßß", b: "yy" }, { a: '""' }];
  expect(longestVariables(all)).toEqual({ a: "ßß", b: "yy" });
});
