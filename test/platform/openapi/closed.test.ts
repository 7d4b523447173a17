/** Schemas that are open in the document and closed for the check of what is sent. */
import { Ajv2020 } from "ajv/dist/2020.js";
import { describe, expect, it } from "vitest";
import { closed, withClosedSchemas } from "../../../src/platform/openapi/closed.ts";
import { readContract } from "../../support/contract-check.ts";

const takes = (schema: object, value: unknown) => new Ajv2020({ strict: false }).compile(schema)(value);

const text = { type: "string" };
const open = {
  type: "object",
  properties: {
    name: text,
    owner: { properties: { id: text } },
    tags: { type: "array", items: { properties: { word: text } } },
    more: { type: "object", additionalProperties: true, properties: { known: text } },
    any: { type: "object" },
  },
  patternProperties: { "^x-": text },
};

describe("a closed schema", () => {
  it.each([
    ["an object", { name: "n", other: 1 }],
    ["an object in an object", { owner: { id: "i", other: 1 } }],
    ["an object in an array", { tags: [{ word: "w" }, { other: 1 }] }],
  ])("refuses a member that is not described, of %s", (_where, value) => {
    expect(takes(open, value)).toBe(true);
    expect(takes(closed(open), value)).toBe(false);
  });

  it.each([
    ["what is described", { name: "n", owner: { id: "i" }, tags: [{ word: "w" }, {}] }],
    ["names that a pattern describes", { name: "n", "x-1": "x" }],
    ["objects that say what else they may have", { more: { other: 1 } }],
    ["objects of which nothing is said", { any: { other: 1 } }],
  ])("takes %s", (_what, value) => {
    expect(takes(closed(open), value)).toBe(true);
  });

  it("counts what alternatives and conditions describe", () => {
    const schema = closed({
      properties: { kind: text },
      if: { properties: { kind: { const: "cat" } } },
      // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
      then: { properties: { lives: { type: "integer" } } },
      anyOf: [{ properties: { name: text } }, { properties: { number: { type: "integer" } } }],
    });
    expect(takes(schema, { kind: "cat", lives: 9, name: "Tom" })).toBe(true);
    expect(takes(schema, { kind: "dog", lives: 9, name: "Rex" })).toBe(false);
    expect(takes(schema, { kind: "cat", lives: 9, age: 1 })).toBe(false);
  });

  it("leaves the schema that it was given as it was", () => {
    const before = structuredClone(open);
    closed(open);
    expect(open).toEqual(before);
  });

  it("stands for every schema of a document that has a name", () => {
    const components = { schemas: { One: { properties: { a: text } }, Two: text } };
    expect(withClosedSchemas({ components }).components.schemas).toEqual({
      One: { properties: { a: text }, unevaluatedProperties: false },
      Two: text,
    });
  });
});

describe("the contract check", () => {
  const headers = { "content-type": "application/json", "x-request-id": "r" };
  const check = (body: object) =>
    readContract("push-orchestration").check(
      "getNotificationsHistory",
      new Response(null, { status: 200, headers: { ...headers, "cache-control": "no-store" } }),
      JSON.stringify(body),
    );
  const entry = {
    id: "019aa4b1-9d3c-7a52-8c11-5be0a1f6d201",
    userId: "u",
    viewed: false,
    notification: { title: "t", message: "m", image: null },
    sendAt: "2026-11-21T09:30:00.000Z",
  };
  const page = { content: [entry], number: 0, size: 20, totalElements: 1 };

  it("takes what the document describes", () => {
    expect(() => check(page)).not.toThrow();
  });

  it.each([
    ["at the top", { ...page, more: 1 }],
    ["in an entry", { ...page, content: [{ ...entry, more: 1 }] }],
    ["below it", { ...page, content: [{ ...entry, notification: { ...entry.notification, more: 1 } }] }],
  ])("finds a member that the document does not describe, %s", (_where, body) => {
    expect(() => check(body)).toThrow(/unevaluated properties .*more/);
  });
});
