/** What a document says of operations that may be refused. */
import { expect, it } from "vitest";
import { loadContract } from "../../../src/platform/openapi/document.ts";
import { sheddableOperations } from "../../../src/platform/openapi/sheddable.ts";
import { captureLog } from "../../support/captured-log.ts";
import { sampleTexts } from "../../support/sample-api.ts";

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
  const sheddable = sheddableOperations("sample", await loadContract(sampleTexts), captureLog().logger);
  expect(sheddable).toEqual([
    expect.objectContaining({ method: "POST", paths: ["/api/sample/v1/tokens"], priority: "normal" }),
    expect.objectContaining({ method: "GET", paths: ["/api/sample/v1/behaviours/:name"], priority: "low" }),
  ]);
});
