/** The links of the documents can be followed: from an identity to its tokens, and on to their end. */
import { beforeAll, expect, test } from "vitest";
import {
  entriesOf,
  follow,
  type Json,
  type JsonObject,
  objectOf,
  resolveObject,
} from "../../scripts/openapi/document.ts";
import { type AuthApi, authApi, internal, mobileApp } from "../support/auth-api.ts";
import { startAuthServer } from "../support/auth-server.ts";
import type { Answer } from "../support/contract-api.ts";
import { openapiDocuments } from "../support/openapi-documents.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";

let api: AuthApi;
const cleanup = suiteCleanup();
beforeAll(async () => {
  const server = await startAuthServer("PGlite");
  cleanup.defer(() => server.stop());
  api = authApi(server.base);
});

const root = objectOf(openapiDocuments.find(({ name }) => name === "auth")?.root);

/** What an operation, by its id, says of a status. */
function responseOf(operationId: string, status: string): JsonObject {
  const operations = entriesOf(root["paths"]).flatMap(([, item]) =>
    entriesOf(item).map(([, one]) => objectOf(one)),
  );
  const operation = operations.find((one) => one["operationId"] === operationId);
  return resolveObject(root, objectOf(operation?.["responses"])[status]);
}

/** A text with its runtime expressions replaced (OpenAPI 3.1.1 section 4.8.20.4). */
function evaluate(text: Json | undefined, { body }: Answer): string {
  return String(text).replaceAll(/\{?\$response\.body(#[^}]*)\}?/g, (_, pointer: string) =>
    encodeURIComponent(String(follow(body as JsonObject, pointer))),
  );
}

/** Calls what a link of a response leads to. */
function followLink(operationId: string, link: string, response: Answer, as: string): Promise<Answer> {
  const {
    operationId: target,
    parameters,
    requestBody,
  } = objectOf(objectOf(responseOf(operationId, String(response.status))["links"])[link]);
  const path = entriesOf(parameters).map(([name, value]) => [name, evaluate(value, response)]);
  return api.call(String(target), {
    as,
    path: Object.fromEntries(path),
    ...(requestBody !== undefined && {
      raw: evaluate(requestBody, response),
      headers: { "content-type": "application/x-www-form-urlencoded" },
    }),
  });
}

test("from an identity to its tokens, to their successors, and to their revocation", async () => {
  const identity = await api.call("createIdentity", {
    as: internal,
    json: { id: "linked", phone: "+12025550187" },
  });
  const read = await followLink("createIdentity", "get", identity, internal);
  expect(read.body).toEqual(identity.body);

  const pair = await followLink("createIdentity", "tokens", identity, mobileApp);
  expect(await followLink("generateTokens", "introspect", pair, internal)).toMatchObject({
    body: { active: true, sub: "linked" },
  });
  const next = await followLink("generateTokens", "refresh", pair, mobileApp);
  expect(next.body).not.toEqual(pair.body);
  expect(next.body).toMatchObject({ token_type: "Bearer" });

  expect((await followLink("generateTokens", "revoke", next, mobileApp)).status).toBe(200);
  expect((await followLink("generateTokens", "introspect", next, internal)).body).toEqual({ active: false });

  expect((await followLink("createIdentity", "delete", identity, internal)).status).toBe(204);
});
