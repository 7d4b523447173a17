/** Lengths of texts are counted as JSON Schema counts them, and named as Ajv names them. */
import { Ajv2020 } from "ajv/dist/2020.js";
import fc from "fast-check";
import { expect, test } from "vitest";
import { contractTexts, loadContract } from "../../../src/platform/openapi/document.ts";

const document = await loadContract(contractTexts("auth"));

function validatorsOf(operationId: string) {
  return (
    document.operations.find(({ id }) => id === operationId)?.requestValidators() ??
    expect.fail("no operation")
  );
}

const [ofPassword = expect.fail("no validator")] = validatorsOf("setIdentityPassword");
const limits = { minLength: 8, maxLength: 128 };
const ofAjv = new Ajv2020({ allErrors: true }).compile({ type: "string", ...limits });

const pieces = fc.constantFrom("a", "\u00e9", "\u4e2d", "\u{1f600}", "\ud83d", "\ude00");

test("the same texts are too long or too short as for Ajv, in the same words", () => {
  fc.assert(
    fc.property(fc.array(pieces, { maxLength: 140, size: "max" }), (parts) => {
      const password = parts.join("");
      const isValid = ofPassword({ path: { id: "user-1" }, query: {}, requestBody: { password } });
      expect(isValid).toBe(ofAjv(password));
      const messages = (errors: typeof ofAjv.errors) => (errors ?? []).map(({ message }) => message);
      expect(messages(ofPassword.errors)).toEqual(messages(ofAjv.errors));
    }),
    { numRuns: 2000 },
  );
});

test.each([
  ["\u{1f600}".repeat(limits.maxLength), true],
  ["\u{1f600}".repeat(limits.maxLength + 1), false],
  ["\u{1f600}".repeat(limits.minLength), true],
  ["\u{1f600}".repeat(limits.minLength - 1), false],
  ["a".repeat(limits.maxLength), true],
  ["a".repeat(limits.maxLength + 1), false],
  ["a".repeat(limits.minLength - 1), false],
])("at the limits: %s", (password, isValid) => {
  expect(ofPassword({ path: { id: "user-1" }, query: {}, requestBody: { password } })).toBe(isValid);
});

test("a text that is too long and does not match the pattern is first reported as too long", () => {
  const [ofIdentity] = validatorsOf("createIdentity");
  ofIdentity?.({ path: {}, query: {}, requestBody: { id: "é".repeat(129), phone: "+12025550123" } });
  expect(ofIdentity?.errors?.map(({ keyword }) => keyword)).toEqual(["maxLength", "pattern"]);
});
