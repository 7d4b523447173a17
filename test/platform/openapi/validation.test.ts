/** What is wrong with a body by its schema and by rules that no schema can express, named at once. */
import { Ajv2020 } from "ajv/dist/2020.js";
import { describe, expect, it } from "vitest";
import type { InputError } from "../../../src/platform/base/errors.ts";
import { validate } from "../../../src/platform/openapi/validation.ts";

const text = { type: "string" };
const requestBody = {
  type: "object",
  required: ["name"],
  additionalProperties: false,
  properties: {
    name: text,
    size: { type: "integer", maximum: 10 },
    tags: { type: "array", items: text },
    names: { type: "object", additionalProperties: text },
    part: {
      anyOf: [
        {
          type: "object",
          required: ["id"],
          properties: {
            id: text,
            count: { type: "integer", minimum: 1 },
            ids: { type: "array", items: text },
          },
        },
        { type: "null" },
      ],
    },
  },
};
const schema = { type: "object", properties: { requestBody } };
const validators = [new Ajv2020({ allErrors: true, strict: false }).compile(schema)];

/** The places that are refused, and the bodies that rules were asked about. */
function refused(body: unknown, found: readonly InputError[] = []) {
  const asked: unknown[] = [];
  const rules = (looked: unknown) => {
    asked.push(looked);
    return found;
  };
  try {
    validate(validators, { path: {}, query: {}, requestBody: body }, rules);
  } catch (error) {
    const pointers = Object(error).errors.map(({ pointer }: InputError) => pointer);
    return { pointers, asked };
  }
  return { pointers: [], asked };
}

const further = [{ pointer: "/body/name", message: "is taken" }];

it("names twenty places of many that are wrong, in time that grows with their number alone", () => {
  const names = Object.fromEntries(Array.from({ length: 40_000 }, (_, index) => [`n${index}`, 1]));
  const { pointers } = refused({ name: "n", names, part: { id: 1, count: 0 } });
  expect(pointers).toHaveLength(20);
  const ids = Array.from({ length: 40_000 }, () => 1);
  expect(refused({ name: "n", part: { id: "i", ids } }).pointers).toHaveLength(20);
});

describe("rules beside a schema", () => {
  it("are not asked where the schema is kept: the handler asks itself", () => {
    expect(refused({ name: "n" }, further)).toEqual({ pointers: [], asked: [] });
  });

  it("add what they find to what the schema finds, each place once", () => {
    const body = { name: "n", size: 11 };
    expect(refused(body, further).pointers).toEqual(["/body/size", "/body/name"]);
    const same = [{ pointer: "/body/size", message: "is too much" }];
    expect(refused(body, same).pointers).toEqual(["/body/size"]);
  });

  it("see a body without the members that have another type, and the request keeps its own", () => {
    const body = { name: "n", size: "x", names: { "a/b": 1, c: "d" }, more: true };
    const { pointers, asked } = refused(body, further);
    expect(asked).toEqual([{ name: "n", names: { c: "d" } }]);
    expect(pointers).toEqual(["/body/more", "/body/size", "/body/names/a~1b", "/body/name"]);
    expect(body).toEqual({ name: "n", size: "x", names: { "a/b": 1, c: "d" }, more: true });
  });

  it.each([
    ["a needed member", { size: 11 }],
    ["the type of a needed member", { name: 1, size: 11 }],
    ["the type of an item, as the others would move", { name: "n", tags: ["a", 1] }],
    ["the type of all", []],
  ])("are not asked where %s is wrong", (_what, body) => {
    expect(refused(body, further).asked).toEqual([]);
  });
});

describe("a member that may be null", () => {
  it("is named by what is wrong within it, not as if it had to be null", () => {
    expect(refused({ name: "n", part: { id: "i", count: 0 } }).pointers).toEqual(["/body/part/count"]);
    expect(refused({ name: "n", part: { count: 0 } }).pointers).toEqual([
      "/body/part/id",
      "/body/part/count",
    ]);
    expect(refused({ name: "n", part: 7 }).pointers).toEqual(["/body/part"]);
    expect(refused({ name: "n", part: null }).pointers).toEqual([]);
  });
});
