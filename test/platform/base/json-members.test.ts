import { describe, expect, it } from "vitest";
import { repeatedMember } from "../../../src/platform/base/json-members.ts";

describe("a member that an object has more than once is found", () => {
  it.each([
    ['{"a":1,"a":1}', "a"],
    ['{"a":1,"b":{"a":2},"a":3}', "a"],
    ['[{"b":[]},{"x":[{"c":1,"d":2,"c":{}}]}]', "c"],
    ['{"a":{"b":1},"c":{"b":1,"b":2}}', "b"],
    ['{"a" :1 ,\n\t"a"\n:2}', "a"],
    ['{"\\u0061":1,"a":2}', "a"],
    ['{"a\\"b":1,"a\\u0022b":2}', 'a"b'],
    ['{"":1,"":2}', ""],
    ['{"__proto__":1,"__proto__":2}', "__proto__"],
  ])("%s", (text, name) => {
    expect(repeatedMember(text)).toBe(name);
  });
});

describe("text that only resembles a repeated member is not one", () => {
  it.each([
    '{"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}]}',
    '{"a":"a","b":"\\"a\\":1,\\"a\\":2","c":"{\\"a\\":1,"}',
    '{"a":1,"A":1,"a ":1,"\\\\a":1}',
    '["a","a",["a"]]',
    '"a"',
    "null",
    "{}",
  ])("%s", (text) => {
    expect(repeatedMember(text)).toBeUndefined();
  });
});

it("is looked for in a large and deep text without getting lost", () => {
  const deep = `${'{"a":['.repeat(5000)}${"]}".repeat(5000)}`;
  expect(repeatedMember(deep)).toBeUndefined();
  expect(repeatedMember(`{"text":${JSON.stringify('\\"{'.repeat(20_000))},"x":1,"x":2}`)).toBe("x");
});
