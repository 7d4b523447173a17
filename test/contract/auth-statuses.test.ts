/**
 * Every operation of openapi/auth.yaml reaches every status that it declares, and `api.call` holds each of
 * the responses against the document. The last test counts.
 */
import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { guessingRules } from "../../src/auth/limits/guessing.ts";
import { basic, type CallOptions, internal, mobileApp, newPhone } from "../support/auth-api.ts";
import { readContract } from "../support/contract-check.ts";
import { newKeyPair, publicApp } from "../support/public-app.ts";
import { newMobilePhone, sentCode } from "../support/sent-code.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { type Deployments, sessionsClient, startDeployments } from "./auth-deployments.ts";
import {
  type Case,
  casesFrom,
  one,
  type Request,
  statusRun,
  withoutCredentials,
  withRaw,
} from "./status-cases.ts";

const contract = readContract("auth");
const sessionsApp = basic(sessionsClient.clientId, sessionsClient.clientSecret);
let deployments: Deployments;
const { answers, expectAllReached } = statusRun(contract, (on) => deployments.api(on).call);
/** An identity of the healthy server, and a token of its that all three know. */
const known = { id: "", phone: "", token: "", sessionsToken: "" };

const cleanup = suiteCleanup();
beforeAll(async () => {
  deployments = await startDeployments(contract);
  cleanup.defer(() => deployments.stop());
  Object.assign(known, await healthy().newIdentity());
  known.token = (await healthy().newPair(known.id)).access_token;
  known.sessionsToken = (await healthy().newPair(known.id, sessionsApp)).access_token;
});

function healthy() {
  return deployments.api("healthy");
}

async function someoneNew() {
  return { id: (await healthy().newIdentity()).id };
}

/** An app that signs its user in. */
async function someApp() {
  const issuer = "http://127.0.0.1/api/auth";
  return publicApp({
    ...{ clientId: "app", issuer, keys: await newKeyPair(), next: healthy },
    otp: (phone) => sentCode([{ logs: () => deployments.logs("healthy") }], phone),
  });
}
const challengeOfSomeone = async (more: Record<string, string> = {}) =>
  (await someApp()).beginning(newMobilePhone(), more);

const asUser = () => ({ as: `Bearer ${known.sessionsToken}` });
const unknown = { authorizationId: randomUUID() };
const nobody = { id: "nobody" };
const fieldsOfSomeoneNew = () => ({ id: randomUUID(), phone: newPhone() });

/** A request to each operation with which nothing is wrong, about an identity that does not exist. */
const wellFormed: Record<string, Request> = {
  createIdentity: () => ({ as: internal, json: fieldsOfSomeoneNew() }),
  findIdentityByPhone: () => ({ as: internal, query: "?phone=%2B12025550000" }),
  getIdentity: () => ({ as: internal, path: nobody }),
  updateIdentity: () => ({ as: internal, path: nobody, json: { phone: newPhone() } }),
  deleteIdentity: () => ({ as: internal, path: nobody }),
  setIdentityPassword: () => ({ as: internal, path: nobody, json: { password: "correct horse" } }),
  removeIdentityPassword: () => ({ as: internal, path: nobody }),
  clearIdentityAttempts: () => ({ as: internal, path: nobody }),
  listAuthorizations: () => ({ as: internal, path: nobody }),
  endAllAuthorizations: () => ({ as: internal, path: nobody }),
  endAuthorization: () => ({ as: internal, path: { ...nobody, ...unknown } }),
  listOwnAuthorizations: asUser,
  endAllOwnAuthorizations: () => ({ ...asUser(), query: "?except=current" }),
  endOwnAuthorization: () => ({ ...asUser(), path: unknown }),
  endOrganizationAuthorizations: () => ({ as: internal, path: nobody }),
  generateTokens: () => ({ as: mobileApp, form: { grant_type: "auth", auth_id: "nobody" } }),
  challengeAuthorization: () => challengeOfSomeone(),
  introspectToken: () => ({ as: internal, form: { token: known.token } }),
  revokeToken: () => ({ as: internal, form: { token: known.token } }),
  getKeySet: () => ({}),
  getOpenIdConfiguration: () => ({}),
  getAuthorizationServerMetadata: () => ({}),
};

const aboutOne = [
  "getIdentity",
  "updateIdentity",
  "deleteIdentity",
  "setIdentityPassword",
  "removeIdentityPassword",
  "clearIdentityAttempts",
  "listAuthorizations",
  "endAllAuthorizations",
];
const organization = "endOrganizationAuthorizations";
const aboutOneself = ["listOwnAuthorizations", "endAllOwnAuthorizations", "endOwnAuthorization"];
const aboutIdentities = ["createIdentity", "findIdentityByPhone", "endAuthorization", ...aboutOne];
const oauth = ["generateTokens", "challengeAuthorization", "introspectToken", "revokeToken"];
const open = ["getKeySet", "getOpenIdConfiguration", "getAuthorizationServerMetadata"];
/** The token operation answers wrong credentials with 400. */
const with401 = [...aboutIdentities, ...aboutOneself, organization, "introspectToken", "revokeToken"];
const withBody = ["createIdentity", "updateIdentity", "setIdentityPassword", ...oauth];
const lists = ["listAuthorizations", "listOwnAuthorizations"];
const withJsonAnswer = ["createIdentity", "findIdentityByPhone", "getIdentity", ...lists, ...oauth, ...open];
const withDatabase = [...aboutIdentities, ...aboutOneself, organization, ...oauth];

const each = casesFrom(wellFormed);

/** The code of the identity operations, and that of the OAuth operations. */
function either(problem: string, error: string) {
  return (operation: string) => (oauth.includes(operation) ? error : problem);
}

function tooLarge(request: CallOptions, operation: string): CallOptions {
  const mediaType = oauth.includes(operation) ? "application/x-www-form-urlencoded" : "application/json";
  return withRaw(request, "a".repeat(65_537), mediaType);
}

const successes: Case[] = [
  one("createIdentity", 200, "for somebody new", () => ({ as: internal, json: fieldsOfSomeoneNew() })),
  one("findIdentityByPhone", 200, "for a phone that is bound", () => ({
    as: internal,
    query: `?phone=${encodeURIComponent(known.phone)}`,
  })),
  one("getIdentity", 200, "for one that exists", () => ({ as: internal, path: { id: known.id } })),
  one("updateIdentity", 204, "for a changed e-mail address", async () => ({
    as: internal,
    path: await someoneNew(),
    json: { email: `${randomUUID()}@example.com` },
  })),
  one("deleteIdentity", 204, "for one that exists", async () => ({
    as: internal,
    path: await someoneNew(),
  })),
  one("setIdentityPassword", 204, "for one that exists", async () => ({
    as: internal,
    path: await someoneNew(),
    json: { password: "correct horse" },
  })),
  one("clearIdentityAttempts", 204, "for one that is not locked", async () => ({
    as: internal,
    path: await someoneNew(),
  })),
  one(organization, 204, "for one that nobody has acted for", () => ({ as: internal, path: nobody })),
  one("removeIdentityPassword", 204, "for one without a password", async () => ({
    as: internal,
    path: await someoneNew(),
  })),
  one("listAuthorizations", 200, "for one that exists", () => ({ as: internal, path: { id: known.id } })),
  one("endAllAuthorizations", 204, "for one that exists", async () => ({
    as: internal,
    path: await someoneNew(),
  })),
  one("endAuthorization", 204, "for one of the identity", async () => ({
    as: internal,
    path: { id: known.id, authorizationId: await oneOfKnown() },
  })),
  one("listOwnAuthorizations", 200, "to the user of a token", asUser),
  one("endOwnAuthorization", 204, "for one's own", async () => ({
    ...asUser(),
    path: { authorizationId: await oneOfKnown() },
  })),
  one("generateTokens", 200, "for an identity that exists", () => ({
    as: mobileApp,
    form: { grant_type: "auth", auth_id: known.id },
  })),
  one("challengeAuthorization", 200, "for the right code", async () => {
    const [app, phone] = [await someApp(), newMobilePhone()];
    await healthy().newIdentity({ phone });
    return app.withCode(phone);
  }),
  one("introspectToken", 200, "for an active token", () => ({ as: internal, form: { token: known.token } })),
  one("introspectToken", 200, "for garbage", () => ({ as: internal, form: { token: "garbage" } })),
  one("revokeToken", 200, "for a token of the caller", async () => ({
    as: mobileApp,
    form: { token: (await healthy().newPair(known.id)).refresh_token },
  })),
  one("endAllOwnAuthorizations", 204, "to the user of a token", async () => {
    const { access_token } = await healthy().newPair((await someoneNew()).id, sessionsApp);
    return { as: `Bearer ${access_token}`, query: "?except=current" };
  }),
  one("getKeySet", 200, "to anybody", () => ({})),
  one("getKeySet", 304, "to who holds the newest copy", async () => ({
    headers: { "if-none-match": (await healthy().call("getKeySet")).headers.get("etag") ?? "" },
  })),
  one("getOpenIdConfiguration", 200, "to anybody", () => ({})),
  one("getAuthorizationServerMetadata", 200, "to anybody", () => ({})),
];

const invalid = "invalid_request";
const badInput: Case[] = [
  one("createIdentity", 400, "without a phone", () => ({ as: internal, json: { id: "a" } }), invalid),
  one("findIdentityByPhone", 400, "without a phone", () => ({ as: internal }), invalid),
  ...each(
    [...aboutOne, "endAuthorization", organization],
    { status: 400, when: "for an id that cannot be one", code: invalid },
    (request) => ({ ...request, path: { ...request.path, id: "Schlüssel" } }),
  ),
  one("listOwnAuthorizations", 400, "for a page of none", () => ({ ...asUser(), query: "?size=0" }), invalid),
  one("endAllOwnAuthorizations", 400, "except others", () => ({ ...asUser(), query: "?except=x" }), invalid),
  one(
    "endOwnAuthorization",
    400,
    "for an id that cannot be one",
    () => ({ ...asUser(), path: { authorizationId: "x" } }),
    invalid,
  ),
  ...each(
    ["generateTokens"],
    { status: 400, when: "without credentials", code: "invalid_client" },
    withoutCredentials,
  ),
  ...each(["generateTokens"], { status: 400, when: "for nobody", code: "invalid_grant" }),
  one(
    "challengeAuthorization",
    400,
    "without PKCE",
    () => challengeOfSomeone({ code_challenge: "" }),
    invalid,
  ),
  one("introspectToken", 400, "without a token", () => ({ as: internal, form: {} }), invalid),
  ...["introspectToken", "revokeToken"].flatMap((operation) =>
    ["x=1&x=2", "token=a"].map((more) =>
      one(
        operation,
        400,
        `for a repeated parameter, as in ${more}`,
        () => ({ as: internal, form: `token=${known.token}&${more}` }),
        invalid,
      ),
    ),
  ),
  one("revokeToken", 400, "for garbage", () => ({ as: internal, form: { token: "x" } }), "invalid_token"),
];

const guess = basic("internal", "wrong");
const unauthenticated = either("unauthenticated", "invalid_client");
const refusals: Case[] = [
  one(
    "challengeAuthorization",
    403,
    "until it has the code",
    () => challengeOfSomeone(),
    "insufficient_authorization",
  ),
  one(
    "challengeAuthorization",
    429,
    "for a second code at once",
    async () => {
      const [app, phone] = [await someApp(), newMobilePhone()];
      await app.session(phone);
      return app.beginning(phone);
    },
    "slow_down",
  ),
  ...each(with401, { status: 401, when: "without credentials", code: unauthenticated }, withoutCredentials),
  ...each(with401, { status: 401, when: "with a wrong secret", code: unauthenticated }, (request) => ({
    ...request,
    as: guess,
  })),
  ...each(
    [...aboutIdentities, organization],
    { status: 401, when: "to any other client", code: unauthenticated },
    (request) => ({ ...request, as: mobileApp }),
  ),
  ...each(
    aboutOneself,
    { status: 403, when: "to a token without the scope", code: "forbidden" },
    (request) => ({ ...request, as: `Bearer ${known.token}` }),
  ),
  ...each(["endAuthorization", "endOwnAuthorization"], {
    status: 404,
    when: "for one that does not exist",
    code: "not_found",
  }),
  ...each(["findIdentityByPhone", ...aboutOne], {
    status: 404,
    when: "for one that does not exist",
    code: "identity_not_found",
  }),
  ...each(
    Object.keys(wellFormed),
    {
      status: 405,
      when: "to a method that the path does not have",
      code: either("method_not_allowed", invalid),
    },
    (request) => ({ ...withRaw(request, "", "text/plain"), method: "PATCH" }),
  ),
  ...each(
    withJsonAnswer,
    { status: 406, when: "where JSON is ruled out", code: either("not_acceptable", invalid) },
    (request) => ({ ...request, headers: { accept: "text/html, application/json;q=0" } }),
  ),
  one(
    "createIdentity",
    409,
    "for an id that is taken",
    () => ({ as: internal, json: { id: known.id, phone: newPhone() } }),
    "identity_id_taken",
  ),
  one(
    "updateIdentity",
    409,
    "for a phone that is taken",
    async () => ({ as: internal, path: await someoneNew(), json: { phone: known.phone } }),
    "identity_phone_taken",
  ),
  ...each(
    withBody,
    { status: 413, when: "for a body over 64 KiB", code: either("content_too_large", invalid) },
    tooLarge,
  ),
  ...each(
    withBody,
    {
      status: 415,
      when: "for a body of another media type",
      code: either("unsupported_media_type", invalid),
    },
    (request) => withRaw(request, "token=a", "text/plain"),
  ),
];

const limited = one(
  "generateTokens",
  429,
  "to who guesses at a password",
  () => ({ as: mobileApp, form: { grant_type: "password", username: known.id, password: "wrong" } }),
  "slow_down",
);

const faults: Case[] = [
  ...each(withDatabase, {
    status: 500,
    when: "where the database is not what it should be",
    code: either("internal_error", "server_error"),
    on: "broken",
  }),
  ...each(withDatabase, {
    status: 503,
    when: "where the database is away",
    code: either("unavailable", "temporarily_unavailable"),
    on: "away",
  }),
];

/** An authorization of the known identity. */
async function oneOfKnown(): Promise<string> {
  const { jti = "" } = await healthy().introspect((await healthy().newPair(known.id)).access_token);
  return jti.split(".")[0] ?? "";
}

describe("what was asked for is done", () => {
  test.each(successes)("$operation answers $status $when", async (one) => void (await answers(one)));
});

describe("input that is not valid is refused", () => {
  test.each(badInput)("$operation answers $status $when", async (one) => void (await answers(one)));
});

describe("a request that may not be is refused", () => {
  test.each(refusals)("$operation answers $status $when", async (one) => void (await answers(one)));
});

test("guessing is stopped: generateTokens answers 429", async () => {
  const { failures } = guessingRules.password;
  await Promise.all(
    Array.from({ length: failures }, (_, n) =>
      healthy().token({ grant_type: "password", username: known.id, password: `guess ${n}` }),
    ),
  );
  await answers(limited);
});

describe("a fault is answered as the document says; its cause stands in the log under the request's id, and nowhere else", () => {
  test.each(faults)("$operation answers $status $when", async (one) => {
    const { text, headers } = await answers(one);
    expect(text).not.toMatch(/auth\.|select|insert|relation|127\.0\.0\.1|ECONN|postgres|stack/i);
    const lines = deployments.logs(one.on).split("\n");
    const cause = lines.find((line) => line.includes(headers.get("x-request-id") ?? "no id"));
    expect(cause).toMatch(one.on === "away" ? /ECONN/ : /does not exist/);
  });
});

test("every operation has reached every status that the document declares", () => {
  expectAllReached(100);
});
