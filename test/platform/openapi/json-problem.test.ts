/** Problems of JSON bodies: they are found wherever they are, and to look for them costs little more than the parsing. */
import { Readable } from "node:stream";
import fc from "fast-check";
import { beforeAll, describe, expect, it, test } from "vitest";
import { repeatedMember } from "../../../src/platform/base/json-members.ts";
import {
  type ContractDocument,
  contractTexts,
  loadContract,
} from "../../../src/platform/openapi/document.ts";
import { jsonProblem } from "../../../src/platform/openapi/json-problem.ts";
import { readBody } from "../../../src/platform/openapi/request-body.ts";
import { waitFor } from "../../support/wait-for.ts";

describe("a problem is found", () => {
  it.each([
    ['{"a":1,"a":1}', "/body", 'gives "a" more than once'],
    ['[{"b":[]},{"x":[{"c":1,"d":2,"c":{}}]}]', "/body/1/x/0", 'gives "c" more than once'],
    ['{"a" :1 ,\n\t"a"\n:2}', "/body", 'gives "a" more than once'],
    ['{"\\u0061":1,"a":2}', "/body", 'gives "a" more than once'],
    ['{"a\\/":1,"a/":2}', "/body", 'gives "a/" more than once'],
    ['{"":1,"":2}', "/body", 'gives "" more than once'],
    ['{"__proto__":1,"__proto__":2}', "/body", 'gives "__proto__" more than once'],
    ['{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"b":0}', "/body", 'gives "b" more than once'],
    ['{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"i":0}', "/body", 'gives "i" more than once'],
    ['{"a":[[],{"b":[0,"\\u0000"]}]}', "/body/a/1/b/1", "contains a NUL character"],
    ['["\\\\","\\\\u0000","\\uDBFF!"]', "/body/2", "contains half of a surrogate pair"],
    ['{"a/~":{"\\u0000":1}}', "/body/a~1~0", "has a member name that contains a NUL character"],
    ["[1,-1e999]", "/body/1", "is a number out of range"],
    [`[${"9".repeat(400)}]`, "/body/0", "is a number out of range"],
    ['{"a":9007199254740993}', "/body/a", "is a number with more digits than are kept; send it as a string"],
    ["[0,1E-400]", "/body/1", "is a number with more digits than are kept; send it as a string"],
    [`${"[".repeat(33)}{}${"]".repeat(33)}`, `/body${"/0".repeat(33)}`, "is nested deeper than 32 levels"],
    ["1e999", "/body", "is a number out of range"],
  ])("%.60s", (text, pointer, message) => {
    expect(jsonProblem(text)).toEqual({ pointer, message });
  });
});

describe("no problem is found", () => {
  it.each([
    '{"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}]}',
    '{"a":"a","b":"\\"a\\":1,\\"a\\":2","c":"{\\"a\\":1,"}',
    '{"a":1,"A":1,"a ":1,"\\\\a":1}',
    '["a","a",["a"],"\\ud83d\\uDE00","\\u0010","\\ude","\\\\ud800"]'.replace('"\\ude",', ""),
    '{"a":1,"b":{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9},"c":{"a":1,"i":2},"i":3}',
    `${"[".repeat(33)}${"]".repeat(33)}`,
    '{"a":[1,-2.5,1e2,0.30000000000000004,1.0000000000000000,-0,"9007199254740993"],"e":true,"E":null}',
    '"a"',
    "null",
    "{}",
    " 1 ",
  ])("%.60s", (text) => {
    expect(JSON.parse(text)).toBeDefined();
    expect(jsonProblem(text)).toBeUndefined();
  });
});

/** Texts of objects whose members are repeated now and then, under names that can be spelled in several ways. */
const { text: anyText } = fc.letrec<{ text: string; object: string; array: string; scalar: string }>(
  (tie) => {
    const name = fc.constantFrom('"a"', '"\\u0061"', '"b"', '"a/"', '"a\\/"', '"\\""', '"\\\\"', '"c,d:{"');
    const space = fc.constantFrom("", " ", "\n");
    const member = fc
      .tuple(name, space, tie("text"))
      .map(([key, gap, value]) => `${key}${gap}:${gap}${value}`);
    return {
      text: fc.oneof({ maxDepth: 5 }, tie("scalar"), tie("array"), tie("object")),
      object: fc.array(member, { maxLength: 10 }).map((members) => `{${members.join(",")}}`),
      array: fc.array(tie("text"), { maxLength: 4 }).map((items) => `[${items.join(" , ")}]`),
      scalar: fc.oneof(
        fc.constantFrom("true", "false", "null"),
        fc.string().map((text) => JSON.stringify(text)),
        fc.integer().map(String),
      ),
    };
  },
);

test("a repeated member is found exactly where a search of its own finds one", () => {
  fc.assert(
    fc.property(anyText, (text) => {
      const repeated = repeatedMember(text);
      const message = repeated === undefined ? undefined : `gives ${JSON.stringify(repeated)} more than once`;
      expect(jsonProblem(text)?.message).toBe(message);
    }),
    { numRuns: 500 },
  );
});

describe("a body of 64 KiB costs about as much as its parsing", () => {
  let document: ContractDocument;
  beforeAll(async () => {
    document = await loadContract(contractTexts("auth", "auth"));
  });

  /** As many of them as a body takes. */
  function filled(one: (index: number) => string, open = '{"a":[', close = "]}"): string {
    let text = open;
    for (let index = 0; ; index += 1) {
      const more = `${index > 0 ? "," : ""}${one(index)}`;
      if (text.length + more.length + close.length > 65_536) return text + close;
      text += more;
    }
  }
  const nested = "[[[[[[[[]]]]]]]]";
  const structures = {
    "nested arrays": filled(() => nested),
    "nested arrays, and a problem at the end": filled(() => nested, '{"a":[', '],"b":1e999}'),
    "empty objects": filled(() => "{}"),
    "empty texts": filled(() => '""'),
    members: filled((index) => `"k${index}":0`, "{", "}"),
    "members with null": filled((index) => `"k${index}":null`, "{", "}"),
    "members with escapes": filled((index) => `"\\n${index}":0`, "{", "}"),
    "objects with members": filled(() => '{"a":0,"b":0}'),
  };
  // V8 parses these faster than anything that looks at them: they are compared with the slowest of the others.
  const scalars = {
    digits: filled(() => "0"),
    exponents: filled(() => "1e-300"),
    "zeros with exponents": filled(() => "0e9"),
    "numbers close to zero": filled(() => "1e-310"),
    "numbers with 17 digits": filled(() => "0.30000000000000004"),
    surrogates: filled(() => '"\\ud83d\\ude00"'),
    "a text of escapes": `{"a":"${"\\u0061".repeat(10_800)}"}`,
    spaces: `{"a":${" ".repeat(65_000)}1}`,
  };

  /** Milliseconds, the least of many times: at the others somebody else had the processor. */
  async function leastTime(work: () => unknown): Promise<number> {
    const times: number[] = [];
    for (let time = 0; time < 60; time += 1) {
      const before = performance.now();
      await work();
      times.push(performance.now() - before);
    }
    return Math.min(...times);
  }

  async function reading(text: string): Promise<number> {
    const operation = document.operations.find(({ id }) => id === "generateTokens");
    if (!operation) throw new Error("the operation is missing");
    const bytes = Buffer.from(text);
    const headers: Record<string, string> = {
      "content-type": "application/json",
      "content-length": String(bytes.length),
    };
    const read = () =>
      readBody((name) => headers[name], Readable.from([bytes]), operation).catch(() => undefined);
    return leastTime(read);
  }
  const parsing = (text: string) => leastTime(() => JSON.parse(text));
  /** Measures again until it is so: a neighbour on the machine may slow one of the two down for seconds. */
  const takesLess = (times: number, text: string, parsed: string) =>
    waitFor(async () => expect((await reading(text)) / (await parsing(parsed))).toBeLessThan(times));

  it.each(Object.entries(structures))("of %s", async (_, text) => {
    await takesLess(4, text, text);
  });

  it.each(Object.entries(scalars))("of %s", async (_, text) => {
    await takesLess(2, text, structures["nested arrays"]);
  });
});
