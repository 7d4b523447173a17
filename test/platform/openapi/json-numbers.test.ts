import fc from "fast-check";
import { expect, it } from "vitest";
import { losesDigits } from "../../../src/platform/openapi/json-numbers.ts";

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
  expect(losesDigits(text)).toBe(false);
});

it.each(
  [
    ["9007199254740993", "-9007199254740993", "18446744073709551616", "12345678901234567891234"],
    ["0.1000000000000000055", "3.14159265358979323846", "1e-400", "5e-325", "1.00000000000000001"],
  ].flat(),
)("%s is none", (text) => {
  expect(losesDigits(text)).toBe(true);
});

it("takes each double as JSON writes it, and no integer that is another one as a double", () => {
  fc.assert(
    fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), (number) => {
      expect(losesDigits(JSON.stringify(number))).toBe(false);
    }),
  );
  fc.assert(
    fc.property(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n }), (integer) => {
      const isKept = BigInt(JSON.stringify(Number(integer))) === integer;
      expect(losesDigits(`${integer}`)).toBe(!isKept);
    }),
  );
});

it("judges a decimal number as exact arithmetic does", () => {
  const digits = fc.stringMatching(/^(0|[1-9]\d{0,20})(\.\d{1,20})?$/);
  const exponents = fc.option(fc.integer({ min: -330, max: 280 }), { nil: undefined });
  /** The digits and the exponent of a text, as one fraction of two integers. */
  const fraction = (text: string): [bigint, bigint] => {
    const [mantissa = "", exponent = "0"] = text.toLowerCase().split("e");
    const [whole = "", behind = ""] = mantissa.split(".");
    const power = Number(exponent) - behind.length;
    const value = BigInt(whole + behind);
    return power >= 0 ? [value * 10n ** BigInt(power), 1n] : [value, 10n ** BigInt(-power)];
  };
  fc.assert(
    fc.property(digits, exponents, (mantissa, exponent) => {
      const text = exponent === undefined ? mantissa : `${mantissa}e${exponent}`;
      const [value, over] = fraction(text);
      const [kept, keptOver] = fraction(String(Number(text)));
      expect(losesDigits(text)).toBe(value * keptOver !== kept * over);
    }),
    { numRuns: 2_000 },
  );
});
