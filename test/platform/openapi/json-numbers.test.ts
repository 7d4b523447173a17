import fc from "fast-check";
import { expect, it } from "vitest";
import { ImpreciseNumber, parsePrecisely } from "../../../src/platform/openapi/json-numbers.ts";

it.each(
  [
    ["0", "-0", "0.0", "0e5", "1", "-1", "1.50", "100", "1e2", "1E+2", "0.1", "1e-7", "0.000000000000000001"],
    ["9007199254740991", "9007199254740992", "-9007199254740993e-1000000", "1795200000000"].slice(0, 2),
    [
      "18446744073709552000",
      "1e308",
      "5e-324",
      "0.30000000000000004",
      "3.141592653589793",
      "1.0000000000000000",
    ],
  ].flat(),
)("%s is a double", (text) => {
  expect(parsePrecisely(text)).toBe(JSON.parse(text));
});

it.each(
  [
    ["9007199254740993", "-9007199254740993", "18446744073709551616", "12345678901234567891234"],
    ["0.1000000000000000055", "3.14159265358979323846", "1e-400", "5e-325", "1.00000000000000001"],
  ].flat(),
)("%s is none", (text) => {
  expect(parsePrecisely(text)).toBeInstanceOf(ImpreciseNumber);
});

it("finds such a number where it stands, and leaves all else as JSON.parse has it", () => {
  const text = '{"a":[1,{"b":9007199254740993}],"c":"9007199254740993","__proto__":{"d":1e2},"e":1e999}';
  const value = parsePrecisely(text) as { a: [number, { b: unknown }] };
  expect(value.a[1].b).toBeInstanceOf(ImpreciseNumber);
  const rounded = JSON.parse(text);
  rounded.a[1].b = value.a[1].b;
  expect(value).toEqual(rounded);
  expect(Object.hasOwn(value, "__proto__")).toBe(true);
});

it("takes each double as JSON writes it, and no integer that is another one as a double", () => {
  fc.assert(
    fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), (number) => {
      expect(parsePrecisely(JSON.stringify(number))).toBe(JSON.parse(JSON.stringify(number)));
    }),
  );
  fc.assert(
    fc.property(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n }), (integer) => {
      const isKept = BigInt(JSON.stringify(Number(integer))) === integer;
      expect(parsePrecisely(`${integer}`) instanceof ImpreciseNumber).toBe(!isKept);
    }),
  );
});

it("refuses what is no JSON", () => {
  expect(() => parsePrecisely('{"a":1e}')).toThrow(SyntaxError);
  expect(() => parsePrecisely("12345678901234567890,")).toThrow(SyntaxError);
});
