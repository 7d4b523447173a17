/**
 * Every optional member of a request body, from the documents: it comes back as it was sent, or no response has it and
 * the table below names the test that shows its effect.
 */
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import fc from "fast-check";
import { beforeAll, describe, expect, it } from "vitest";
import {
  entriesOf,
  type Json,
  type JsonObject,
  objectOf,
  resolveObject,
  stringsOf,
} from "../../scripts/openapi/document.ts";
import { operationsOf } from "../../scripts/openapi/operations.ts";
import { type AuthApi, authApi, internal, newPhone } from "../support/auth-api.ts";
import { type ContractCall, contractCall } from "../support/contract-api.ts";
import { readContract } from "../support/contract-check.ts";
import { openapiDocuments } from "../support/openapi-documents.ts";
import { type PushServer, startPushServer } from "../support/push-server.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { readSchemas } from "./schema-arbitraries.ts";

let server: PushServer;
let auth: AuthApi;
let push: ContractCall;
let operator: string;
const cleanup = suiteCleanup();
beforeAll(async () => {
  server = await startPushServer("PGlite");
  cleanup.defer(() => server.stop());
  auth = authApi(server.authBase);
  push = contractCall(server.origin, readContract("push-orchestration"));
  operator = `Bearer ${await server.backofficeToken()}`;
});

/** What the resource is when read; undefined if the request was refused for what it says (400). */
type Send = (member: JsonObject) => Promise<JsonObject | undefined>;

/** Operations that write a resource, each with the one that reads it. */
const roundTrips: Readonly<Record<string, { readonly readBy: string; readonly send: Send }>> = {
  createIdentity: {
    readBy: "getIdentity",
    async send(member) {
      const json = { id: randomUUID(), phone: newPhone(), ...member };
      const { status } = await auth.call("createIdentity", { as: internal, json });
      return status === 400 ? undefined : readIdentity(json.id);
    },
  },
  updateIdentity: {
    readBy: "getIdentity",
    async send(json) {
      const { id } = await auth.newIdentity();
      const { status } = await auth.call("updateIdentity", { as: internal, path: { id }, json });
      return status === 400 ? undefined : readIdentity(id);
    },
  },
  sendPushNotification: {
    readBy: "getNotification",
    async send(member) {
      const json = { title: "Hello", message: "How are you?", utcOffsets: [0], ...member };
      const { status, headers } = await push("sendPushNotification", { as: operator, json });
      if (status === 400) return undefined;
      const id = headers.get("notification-id") ?? "";
      return read(await push("getNotification", { as: operator, path: { id } }));
    },
  },
};

const noEffect = "none, as its description says";
const byGrants = "test/auth/grants/grants.test.ts";
const byAuthorizations = "test/auth/tokens/user-authorizations.test.ts";
const byClientSecrets = "test/auth/clients/client-secret-post.test.ts";
const byChallenges = "test/auth/challenge/sign-in.test.ts";
const byDevices = "test/push/http.test.ts";

/** Members that do not come back, each with the test that shows what it does. */
const shownBy: Readonly<Record<string, string>> = {
  "updateIdentity.id": "test/auth/identities/identities.test.ts",
  "generateTokens.username": byGrants,
  "generateTokens.password": byGrants,
  "generateTokens.refresh_token": byGrants,
  "generateTokens.phone": byGrants,
  "generateTokens.auth_id": byGrants,
  "generateTokens.otp_verification_token": byGrants,
  "generateTokens.scope": byGrants,
  "generateTokens.organization": "test/auth/grants/client-credentials.test.ts",
  "generateTokens.device_name": byAuthorizations,
  "generateTokens.metadata": byAuthorizations,
  "generateTokens.client_id": byClientSecrets,
  "generateTokens.client_secret": byClientSecrets,
  "generateTokens.code": byChallenges,
  "generateTokens.code_verifier": byChallenges,
  "challengeAuthorization.client_id": byChallenges,
  "challengeAuthorization.response_type": byChallenges,
  "challengeAuthorization.login_hint": byChallenges,
  "challengeAuthorization.scope": byChallenges,
  "challengeAuthorization.code_challenge": byChallenges,
  "challengeAuthorization.code_challenge_method": byChallenges,
  "challengeAuthorization.auth_session": byChallenges,
  "challengeAuthorization.otp": byChallenges,
  "introspectToken.token_type_hint": noEffect,
  "introspectToken.client_id": byClientSecrets,
  "introspectToken.client_secret": byClientSecrets,
  "revokeToken.token_type_hint": noEffect,
  "revokeToken.client_id": byClientSecrets,
  "revokeToken.client_secret": byClientSecrets,
  "savePushToken.provider": byDevices,
  "savePushToken.language": byDevices,
  "savePushToken.platform": byDevices,
  "createNotification.delivery": "test/push/notifications/accept-audience.test.ts",
  "previewNotification.delivery": "test/push/notifications/preview.test.ts",
  "deletePushToken.token": byDevices,
  "deletePushToken.all": byDevices,
  "deletePushToken.expiration": noEffect,
  "checkVerification.code": "test/development/otp-verifier/otp-verifier.test.ts",
};

/** Reads the identity, and deletes it: the next one may have the same e-mail address. */
async function readIdentity(id: string): Promise<JsonObject> {
  const found = read(await auth.call("getIdentity", { as: internal, path: { id } }));
  await auth.call("deleteIdentity", { as: internal, path: { id } });
  return found;
}

function read({ status, text }: { status: number; text: string }): JsonObject {
  expect(status, text).toBe(200);
  return JSON.parse(text);
}

interface Operation {
  readonly document: string;
  readonly root: JsonObject;
  readonly id: string;
  readonly self: JsonObject;
}

const operations: readonly Operation[] = openapiDocuments.flatMap(({ name: document, root }) =>
  [...operationsOf(root).values()].map(({ self }) => ({
    document,
    root,
    id: String(self["operationId"]),
    self,
  })),
);

/** The schema of the body, request or response, that this object describes. */
function schemaOf(root: JsonObject, holder: Json | undefined): JsonObject {
  const [media] = Object.values(objectOf(resolveObject(root, holder)["content"]));
  return resolveObject(root, objectOf(media)["schema"]);
}

/** The members of a body that need not be sent. */
function optionalOf({ root, self, ...operation }: Operation) {
  const { properties, required } = schemaOf(root, self["requestBody"]);
  return entriesOf(properties)
    .filter(([member]) => !stringsOf(required).includes(member))
    .map(([member, schema]) => ({ ...operation, member, schema: objectOf(schema) }));
}

/** Whether the operation that reads the resource states the member. */
function isRead(operation: string, member: string): boolean {
  const reader = operations.find(({ id }) => id === roundTrips[operation]?.readBy);
  return reader
    ? member in objectOf(schemaOf(reader.root, objectOf(reader.self["responses"])["200"])["properties"])
    : false;
}

const optional = operations.flatMap(optionalOf);
const nameOf = ({ id, member }: { readonly id: string; readonly member: string }) => `${id}.${member}`;
const returning = optional.filter((each) => !(nameOf(each) in shownBy));

/** Values for members whose schema says less than what is taken. */
const sharp: Readonly<Record<string, fc.Arbitrary<unknown>>> = {
  phone: fc.constant(undefined).map(newPhone),
};

/** What is read where this was sent: null and the empty image name are as if the member were absent. */
function expected(member: string, value: unknown): unknown {
  return value === null || (member === "image" && value === "") ? undefined : value;
}

describe("an optional member of a body", () => {
  it("comes back, or is named with the test of its effect", () => {
    expect(returning.filter(({ id, member }) => !isRead(id, member)).map(nameOf)).toEqual([]);
    expect(Object.keys(shownBy).filter((name) => !optional.map(nameOf).includes(name))).toEqual([]);
  });

  it.each(Object.entries(shownBy).filter(([, file]) => file !== noEffect))(
    "%s is sent in %s",
    (name, file) => {
      expect(readFileSync(file, "utf8")).toMatch(new RegExp(`\\b${name.split(".")[1]}\\b`));
    },
  );

  it("comes back where a resource has it", () => {
    const names = returning.map(nameOf);
    expect(names).toEqual(expect.arrayContaining(["createIdentity.email", "updateIdentity.metadata"]));
    expect(names).toContain("sendPushNotification.image");
  });

  it.each(returning)("comes back: $id $member", async ({ document, id, member, schema }) => {
    const values = sharp[member] ?? readSchemas(document).valid(schema);
    const property = fc.asyncProperty(values, async (value) => {
      // As it is on the wire: JSON knows no -0.
      const sent: Json = JSON.parse(JSON.stringify(value));
      const found = await roundTrips[id]?.send({ [member]: sent });
      fc.pre(found !== undefined);
      expect(found?.[member] ?? undefined).toEqual(expected(member, sent));
    });
    await fc.assert(property, { numRuns: 15 });
  });
});
