/**
 * What the reference sends when a reader presses Execute is answered as its operation says: each example of each
 * request body, sent to a server in development mode by a caller that may call the operation.
 */
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import { contractTexts } from "../../src/platform/openapi/document.ts";
import { internal, mobileApp } from "../support/auth-api.ts";
import { type PushServer, startPushServer } from "../support/push-server.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";

interface Example {
  readonly operationId: string;
  readonly method: string;
  readonly path: string;
  readonly type: string;
  readonly name: string;
  readonly value: Readonly<Record<string, string>>;
}
interface Schema {
  readonly $ref?: string;
  readonly example?: unknown;
  readonly properties?: Readonly<Record<string, Schema>>;
}
interface MediaType {
  readonly schema: Schema;
  readonly examples: Readonly<Record<string, { readonly value: Example["value"] }>>;
}
interface Operation {
  readonly operationId: string;
  readonly requestBody?: { readonly content: Readonly<Record<string, MediaType>> };
}
interface Contract {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, Schema>> };
}

/** The identity of the documents' examples, and its password. */
const user = "7f0d4c1e-usr";

/** Examples of what only this deployment's or this moment's values could make succeed; what they are answered with. */
const refused: Readonly<Record<string, string>> = {
  "generateTokens phoneOtp": "invalid_grant",
  "generateTokens phoneOtpToken": "invalid_grant",
  "generateTokens refresh": "invalid_grant",
  "challengeAuthorization begin": "/header/DPoP is missing",
  "challengeAuthorization otp": "/header/DPoP is missing",
  "challengeAuthorization again": "/header/DPoP is missing",
  "challengeAuthorization as it is filled in": "beside login_hint",
  "revokeToken token": "invalid_token",
  "revokeToken as it is filled in": "invalid_token",
  "savePushToken apns": "/body/provider must be one of outbox",
};

const cleanup = suiteCleanup();
let server: PushServer;
beforeAll(async () => {
  server = await startPushServer("PGlite");
  cleanup.defer(() => server.stop());
});

function schemaOf({ components }: Contract, schema: Schema | undefined): Schema {
  const name = schema?.$ref?.split("/").at(-1);
  return (name === undefined ? schema : components.schemas[name]) ?? {};
}

/** A form as Swagger UI fills it in, field by field: where a field has no example, with "string". */
function filledForm(contract: Contract, schema: Schema): Example["value"] {
  const fields = Object.entries(schemaOf(contract, schema).properties ?? {});
  return Object.fromEntries(
    fields.map(([name, field]) => [name, String(schemaOf(contract, field).example ?? "string")]),
  );
}

function examplesOf(contract: Contract): Example[] {
  return Object.entries(contract.paths).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, { operationId, requestBody }]) =>
      Object.entries(requestBody?.content ?? {}).flatMap(([type, { schema, examples }]) => {
        const named = Object.entries(examples).map(([name, { value }]) => [name, value] as const);
        const isForm = type === "application/x-www-form-urlencoded";
        const all = isForm
          ? [...named, ["as it is filled in", filledForm(contract, schema)] as const]
          : named;
        return all.map(([name, value]) => ({ operationId, method, path, type, name, value }));
      }),
    ),
  );
}

function send(origin: string, authorization: string, { method, path, type, value }: Example) {
  const isForm = type === "application/x-www-form-urlencoded";
  return fetch(origin + path.replace("{id}", user), {
    method: method.toUpperCase(),
    headers: { authorization, "content-type": type },
    body: isForm ? new URLSearchParams(value) : JSON.stringify(value),
  });
}

async function expectAnswer({ operationId, name }: Example, response: Response): Promise<void> {
  const reason = refused[`${operationId} ${name}`];
  const text = await response.text();
  if (reason === undefined) expect(response.ok, `${response.status} ${text}`).toBe(true);
  else expect([response.status, text]).toEqual([400, expect.stringContaining(reason)]);
}

describe("auth", () => {
  const examples = examplesOf(JSON.parse(contractTexts("auth").json));
  const exampleOf = (operationId: string) => examples.find((example) => example.operationId === operationId);

  /** Whether there is one or not. */
  const deleteUser = () =>
    fetch(`${server.authBase}/v1/identities/${user}`, {
      method: "DELETE",
      headers: { authorization: internal },
    });

  /** The identity as the first example creates it, with the password of the example. */
  beforeEach(async () => {
    await deleteUser();
    for (const example of [exampleOf("createIdentity"), exampleOf("setIdentityPassword")])
      if (example) expect((await send(server.authBase, internal, example)).ok).toBe(true);
  });

  it.each(examples)("$operationId, $name", async (example) => {
    if (example.operationId === "createIdentity") await deleteUser();
    const caller = example.operationId === "generateTokens" ? mobileApp : internal;
    await expectAnswer(example, await send(server.authBase, caller, example));
  });
});

describe("push", () => {
  const examples = examplesOf(JSON.parse(contractTexts("push-orchestration").json));

  it.each(examples)("$operationId, $name", async (example) => {
    const isOfUser = /PushToken$/.test(example.operationId);
    const token = await (isOfUser ? server.userToken() : server.backofficeToken());
    await expectAnswer(example, await send(server.base, `Bearer ${token}`, example));
  });
});
