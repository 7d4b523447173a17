/** What a document says of operations that may be refused. */
import { expect, it } from "vitest";
import { bindContract } from "../../../src/platform/openapi/bind.ts";
import { loadContract } from "../../../src/platform/openapi/document.ts";
import { type SampleOperations, sampleBinding, sampleTexts } from "../../support/sample-api.ts";

it("an operation states its priority; unless it does, it is low", async () => {
  const { operations } = await loadContract(sampleTexts);
  const stated = new Map(operations.map(({ id, priority }) => [id, priority]));
  expect([stated.get("makeToken"), stated.get("listItems")]).toEqual(["normal", "low"]);
  const json = sampleTexts.json.replace('"x-priority":"normal"', '"x-priority":"urgent"');
  await expect(loadContract({ ...sampleTexts, json })).rejects.toThrow(
    "makeToken: there is no priority urgent",
  );
});

it("those that declare a 503 may be refused, and no others", async () => {
  const { routes } = bindContract<SampleOperations, string>(sampleBinding(await loadContract(sampleTexts)));
  expect(routes.filter(({ sheddable }) => sheddable)).toEqual([
    expect.objectContaining({
      method: "POST",
      path: "/api/sample/v1/tokens",
      sheddable: expect.objectContaining({ service: "sample", priority: "normal" }),
    }),
    expect.objectContaining({
      method: "GET",
      path: "/api/sample/v1/behaviours/{name}",
      sheddable: expect.objectContaining({ priority: "low" }),
    }),
  ]);
});
