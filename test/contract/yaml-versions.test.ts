/**
 * Parsers of YAML 1.1 (PyYAML, SnakeYAML, go-yaml) read the documents, and read what a parser of YAML 1.2 reads.
 */
import { globSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { isCollection, isScalar, parse, parseDocument, visit } from "yaml";

/**
 * Texts without quotes in `{…}` or `[…]` that parsers of YAML 1.1 refuse or end early: PyYAML and SnakeYAML at a
 * question mark, older ones at a colon as well. The `yaml` package is tolerant of both, also when it reads 1.1.
 */
function bareTextsInFlow(text: string): string[] {
  const found: string[] = [];
  visit(parseDocument(text), {
    Scalar(_key, { source = "", type }, ancestors) {
      const isInFlow = ancestors.some((ancestor) => isCollection(ancestor) && ancestor.flow);
      if (isInFlow && type === "PLAIN" && /[?:]/.test(source)) found.push(source);
    },
  });
  return found;
}

/** Strings that YAML 1.1 takes for a boolean, such as `n`, `yes` and `off`, as a key or as a value. */
function booleansOf11(text: string): string[] {
  const found: string[] = [];
  visit(parseDocument(text, { version: "1.1" }), (_key, node) => {
    if (isScalar(node) && typeof node.value === "boolean" && !/^(true|false)$/.test(node.source ?? ""))
      found.push(node.source ?? "");
  });
  return found;
}

const documents = globSync("openapi/*.yaml").sort();

it("there are documents", () => expect(documents.length).toBeGreaterThanOrEqual(3));

describe.each(documents)("%s", (file) => {
  const text = readFileSync(file, "utf8");

  it("has no text without quotes that ends early in YAML 1.1", () => {
    expect(bareTextsInFlow(text)).toEqual([]);
  });

  it("is the same data in YAML 1.1 and 1.2", () => {
    expect(booleansOf11(text)).toEqual([]);
    expect(parse(text, { version: "1.1" })).toEqual(parse(text, { version: "1.2" }));
  });
});

it.each([
  ["a question mark", "value: { title: Hello, message: How are you?, utcOffsets: [0] }"],
  ["a colon", "value: { url: http://127.0.0.1 }"],
])("would be found: %s", (_what, text) => {
  expect(bareTextsInFlow(text)).toHaveLength(1);
});

it.each(["{ n: modulus }", "[kty, n]", "answer: yes"])("would be found: a boolean in %s", (text) => {
  expect(booleansOf11(text)).toHaveLength(1);
});
