/** What a document states of its own, and what of it cannot be bound. */
import { beforeAll, describe, expect, it } from "vitest";
import { bindContract } from "../../../src/platform/openapi/bind.ts";
import {
  type ContractDocument,
  contractTexts,
  loadContract,
} from "../../../src/platform/openapi/document.ts";
import {
  type SampleOperations,
  sampleBinding,
  sampleHandlers,
  sampleSecurity,
  sampleTexts,
} from "../../support/sample-api.ts";

describe("a document", () => {
  const withChange = (from: string, to: string) => loadContract({ ...sampleTexts, json: changed(from, to) });
  const changed = (from: string, to: string) => {
    expect(sampleTexts.json).toContain(from);
    return sampleTexts.json.replaceAll(from, to);
  };

  it("states the error format of an operation; unless it does, errors are problems", async () => {
    const { operations } = await loadContract(sampleTexts);
    const formats = new Map(operations.map(({ id, errorFormat }) => [id, errorFormat]));
    expect([formats.get("makeToken"), formats.get("listItems")]).toEqual(["oauth", "problem"]);
    await expect(withChange('"x-error-format":"oauth"', '"x-error-format":"soap"')).rejects.toThrow(
      "makeToken: there is no error format soap",
    );
  });

  it("states the realm of each scheme that challenges, or cannot be bound", async () => {
    const document = await withChange('"x-realm":"sample"', '"x-other":"sample"');
    expect(() => bindContract<SampleOperations, string>(sampleBinding(document))).toThrow("with an x-realm");
  });

  it.each(["auth", "push-orchestration", "otp-verifier"])(
    "%s declares errors in the format that it states",
    async (name) => {
      const { operations } = await loadContract(contractTexts(name));
      const mediaTypes = { problem: "application/problem+json", oauth: "application/json" };
      for (const { id, responses, errorFormat } of operations) {
        const errors = Object.entries(responses).filter(([status]) => Number(status) >= 400);
        expect(errors.length, id).toBeGreaterThan(0);
        for (const [status, { content }] of errors) {
          expect(Object.keys(content ?? {}), `${id} ${status}`).toEqual([mediaTypes[errorFormat]]);
        }
      }
    },
  );
});

describe("a document that does not fit its service", () => {
  let document: ContractDocument;
  beforeAll(async () => {
    document = await loadContract(sampleTexts);
  });

  it("stops the start at an operation without a handler", () => {
    const { behave: _without, ...handlers } = sampleHandlers;
    const bind = () =>
      bindContract<Omit<SampleOperations, "behave">, string>({ ...sampleBinding(document), handlers });
    expect(bind).toThrow("behave has no handler");
  });

  it("stops the start at a security scheme without a handler", () => {
    const { Badge: _without, ...security } = sampleSecurity;
    expect(() => bindContract<SampleOperations, string>({ ...sampleBinding(document), security })).toThrow(
      "getSecret: no handler for security Badge",
    );
  });

  it("stops the start at credentials that nothing could ask for", () => {
    const { operations, ...rest } = document;
    const secrets = operations.map((one) => ({ ...one, schemes: one.schemes.slice(0, 1) }));
    expect(() =>
      bindContract<SampleOperations, string>(sampleBinding({ ...rest, operations: secrets })),
    ).toThrow("getSecret: none of its security schemes is Basic or Bearer");
  });
});
