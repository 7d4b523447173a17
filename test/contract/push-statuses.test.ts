/**
 * Every operation of openapi/push-orchestration.yaml reaches every status that it declares, and each of the
 * responses is held against the document. The last test counts.
 */
import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import type { CallOptions } from "../support/contract-api.ts";
import { readContract } from "../support/contract-check.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { type PushDeployments, startPushDeployments } from "./push-deployments.ts";
import {
  type Case,
  casesFrom,
  type Deployment,
  one,
  statusRun,
  withoutCredentials,
  withRaw,
} from "./status-cases.ts";

const contract = readContract("push-orchestration");
let deployments: PushDeployments;
const { answers, expectAllReached } = statusRun(contract, (on) => deployments.call(on));

const cleanup = suiteCleanup();
beforeAll(async () => {
  deployments = await startPushDeployments(contract);
  cleanup.defer(() => deployments.stop());
  // Devices for the notifications that must not have ended yet: at one message a second they take a while.
  for (let index = 0; index < 5; index += 1) {
    const json = { ...aDevice(), token: `slow-${index}` };
    const request = { as: deployments.otherUser, json, headers: { "barrier-user-utc-offset": "14" } };
    await deployments.call("healthy")("savePushToken", request);
  }
});

const user = (on: Deployment = "healthy") => deployments.user(on);
const backoffice = (on: Deployment = "healthy") => deployments.backoffice(on);

const aDevice = () => ({ token: randomUUID(), expiration: "2100-01-01T00:00:00Z" });
const aNotification = () => ({ title: "Hello", message: "How are you?", utcOffsets: [14] });
const toSomebody = () => ({
  audience: { users: ["somebody"] },
  content: { texts: { en: { title: "Hello", message: "How are you?" } } },
});
const nobody = { id: "019aa4b1-9d3c-7a52-8c11-5be0a1f6d201" };

/** A notification that is on its way. */
async function sent(): Promise<{ id: string }> {
  const request = { as: backoffice(), json: aNotification() };
  const { headers } = await deployments.call("healthy")("sendPushNotification", request);
  return { id: headers.get("notification-id") ?? "" };
}

async function after(operation: string): Promise<{ id: string }> {
  const path = await sent();
  const { status } = await deployments.call("healthy")(operation, { as: backoffice(), path });
  expect(status).toBe(200);
  return path;
}

const ofUsers = ["savePushToken", "deletePushToken", "getNotificationsHistory", "getNotificationsSummary"];
const controls = ["pauseNotification", "resumeNotification", "cancelNotification"];
const aboutOne = ["getNotification", "listFailures", "listRecipients", "recallNotification", ...controls];
const toAnyone = ["createNotification", "previewNotification"];
const ofProviders = ["resumeProvider", "confirmRemovals", "discardRemovals"];
const lists = ["listNotifications", "listDeadLetters"];
const pages = ["getNotificationsHistory", "getNotificationsSummary", ...lists];
const ofBackoffice = [
  ...["sendPushNotification", "replayDeadLetter", "replayAllDeadLetters", "listProviders"],
  ...[...lists, ...aboutOne, ...ofProviders, ...toAnyone],
];
const guarded = [...ofUsers, ...ofBackoffice];
const all = [...guarded, "startTestNotifications"];
const withShortBody = ["savePushToken", "deletePushToken", "sendPushNotification"];
const withBody = [...withShortBody, ...toAnyone];
const withJsonAnswer = [...pages, ...aboutOne, ...ofProviders, ...toAnyone, "listProviders"];

/** What is sent to each operation beside credentials, and nothing is wrong with. */
const contents: Record<string, () => CallOptions> = {
  savePushToken: () => ({ json: aDevice() }),
  deletePushToken: () => ({ json: { token: "unknown" } }),
  sendPushNotification: () => ({ json: aNotification() }),
  ...Object.fromEntries(toAnyone.map((operation) => [operation, () => ({ json: toSomebody() })])),
  replayDeadLetter: () => ({ path: { id: "4711" } }),
  ...Object.fromEntries(aboutOne.map((operation) => [operation, () => ({ path: nobody })])),
  ...Object.fromEntries(
    ofProviders.map((operation) => [operation, () => ({ path: { provider: "outbox" } })]),
  ),
};

/** Well-formed requests, about what does not exist, to one of the servers. */
function wellFormed(on: Deployment) {
  const requests = all.map((operation) => {
    const as = () => (ofUsers.includes(operation) ? user(on) : backoffice(on));
    const request = () => ({
      ...(guarded.includes(operation) && { as: as() }),
      ...contents[operation]?.(),
    });
    return [operation, request] as const;
  });
  return Object.fromEntries(requests);
}
const each = casesFrom(wellFormed("healthy"));

const successes: Case[] = [
  ...each([...ofUsers, ...lists], { status: 204, when: "to who may" }).map((one) => ({
    ...one,
    status: pages.includes(one.operation) ? 200 : 204,
  })),
  ...each(["startTestNotifications"], { status: 202, when: "to anybody" }),
  ...each(["startTestNotifications"], { status: 202, when: "again" }),
  ...each(["sendPushNotification"], { status: 204, when: "to the back office" }),
  ...each(["createNotification"], { status: 201, when: "to the back office" }),
  ...each(["previewNotification"], { status: 200, when: "to the back office" }),
  one("deletePushToken", 204, "without a body", () => ({ as: user() })),
  one("getNotification", 200, "for one that exists", async () => ({ as: backoffice(), path: await sent() })),
  one("pauseNotification", 200, "for one on its way", async () => ({ as: backoffice(), path: await sent() })),
  one("resumeNotification", 200, "for one that is paused", async () => ({
    as: backoffice(),
    path: await after("pauseNotification"),
  })),
  one("cancelNotification", 200, "for one on its way", async () => ({
    as: backoffice(),
    path: await sent(),
  })),
  one("recallNotification", 200, "for one on its way", async () => ({
    as: backoffice(),
    path: await sent(),
  })),
  ...["listFailures", "listRecipients"].map((operation) =>
    one(operation, 200, "for one that exists", async () => ({ as: backoffice(), path: await sent() })),
  ),
  ...each([...ofProviders, "listProviders"], { status: 200, when: "to the back office" }),
  one("replayDeadLetter", 204, "for one whose notification may go on", () => ({
    as: backoffice(),
    path: { id: deployments.deadLetters.open },
  })),
  ...each(["replayAllDeadLetters"], { status: 202, when: "to the back office" }),
];

const invalid = "invalid_request";
const badInput: Case[] = [
  ...each(withBody, { status: 400, when: "for a body that is not JSON", code: invalid }, (request) =>
    withRaw(request, "{", "application/json"),
  ),
  ...each(pages, { status: 400, when: "for a page of no entries", code: invalid }, (request) => ({
    ...request,
    query: "?size=0",
  })),
  ...each(ofProviders, { status: 400, when: "for what is no provider", code: invalid }, (request) => ({
    ...request,
    path: { provider: "pigeon" },
  })),
  ...each(
    ["replayAllDeadLetters"],
    { status: 400, when: "for what is no provider", code: invalid },
    (request) => ({
      ...request,
      query: "?provider=pigeon",
    }),
  ),
  ...each(
    [...aboutOne, "replayDeadLetter"],
    { status: 400, when: "for an id that cannot be one", code: invalid },
    (request) => ({ ...request, path: { id: "not an id" } }),
  ),
];

const refusals: Case[] = [
  one(
    "replayAllDeadLetters",
    404,
    "for a notification that does not exist",
    () => ({ as: backoffice(), query: `?notificationId=${nobody.id}` }),
    "notification_not_found",
  ),
  ...each(guarded, { status: 401, when: "without a token", code: "unauthenticated" }, withoutCredentials),
  ...each(guarded, { status: 401, when: "with no good one", code: "unauthenticated" }, (request) => ({
    ...request,
    as: `${request.as}x`,
  })),
  ...each(
    guarded,
    { status: 403, when: "to the other application", code: "forbidden" },
    (request, operation) => ({ ...request, as: ofUsers.includes(operation) ? backoffice() : user() }),
  ),
  ...each(aboutOne, { status: 404, when: "for what does not exist", code: "notification_not_found" }),
  ...each(
    ofProviders,
    { status: 404, when: "for a provider that is not in use", code: "not_found" },
    (request) => ({ ...request, path: { provider: "apns" } }),
  ),
  ...each(["replayDeadLetter"], {
    status: 404,
    when: "for what does not exist",
    code: "dead_letter_not_found",
  }),
  ...each(
    all,
    { status: 405, when: "to a method that the path does not have", code: "method_not_allowed" },
    (request) => ({ ...withRaw(request, "", "text/plain"), method: "PATCH" }),
  ),
  ...each(
    withJsonAnswer,
    { status: 406, when: "where JSON is ruled out", code: "not_acceptable" },
    (request) => ({ ...request, headers: { accept: "text/html, application/json;q=0" } }),
  ),
  ...controls.map((operation) =>
    one(
      operation,
      409,
      "for one that was cancelled",
      async () => ({ as: backoffice(), path: await after("cancelNotification") }),
      "notification_finished",
    ),
  ),
  one(
    "replayDeadLetter",
    409,
    "for one whose notification was cancelled",
    () => ({ as: backoffice(), path: { id: deployments.deadLetters.cancelled } }),
    "notification_finished",
  ),
  ...[
    { operation: "sendPushNotification", json: { ...aNotification(), title: "Another" } },
    { operation: "createNotification", json: toSomebody() },
  ].map(({ operation, json }) =>
    one(
      operation,
      409,
      "for another notification under the same key",
      async () => {
        const request = { as: backoffice(), headers: { "idempotency-key": randomUUID() } };
        await deployments.call("healthy")("sendPushNotification", { ...request, json: aNotification() });
        return { ...request, json };
      },
      "idempotency_key_reused",
    ),
  ),
  {
    ...one(
      "savePushToken",
      429,
      "to one who has saved as often as a user may",
      () => ({ as: deployments.otherUser, json: aDevice() }),
      "too_many_requests",
    ),
    tries: 1_000,
  },
  ...each(
    withShortBody,
    { status: 413, when: "for a body over 64 KiB", code: "content_too_large" },
    (request) => withRaw(request, "a".repeat(65_537), "application/json"),
  ),
  ...each(toAnyone, { status: 413, when: "for a body over 1 MiB", code: "content_too_large" }, (request) =>
    withRaw(request, "a".repeat(1_048_577), "application/json"),
  ),
  ...each(
    withBody,
    { status: 415, when: "for a body of another media type", code: "unsupported_media_type" },
    (request) => withRaw(request, "token=a", "text/plain"),
  ),
];

const faults: Case[] = [
  ...casesFrom(wellFormed("broken"))(all, {
    status: 500,
    when: "where the database is not what it should be",
    code: "internal_error",
    on: "broken",
  }),
  ...casesFrom(wellFormed("away"))(all, {
    status: 503,
    when: "where the database is away",
    code: "unavailable",
    on: "away",
  }),
];

describe("what was asked for is done", () => {
  test.each(successes)("$operation answers $status $when", async (one) => void (await answers(one)));

  test("also in the background: dead letters that may be replayed are", async () => {
    const listed = async () => {
      const { body } = await deployments.call("healthy")("listDeadLetters", { as: backoffice() });
      return Object(body).content.map(({ id }: { id: string }) => id);
    };
    await expect.poll(listed, { timeout: 30_000 }).toEqual([deployments.deadLetters.cancelled]);
  });
});

describe("input that is not valid is refused", () => {
  test.each(badInput)("$operation answers $status $when", async (one) => void (await answers(one)));
});

describe("a request that may not be is refused", () => {
  test.each(refusals)("$operation answers $status $when", async (one) => void (await answers(one)));
});

describe("a fault is answered as the document says; its cause stands in the log under the request's id, and nowhere else", () => {
  test.each(faults)("$operation answers $status $when", async (one) => {
    const { text, headers } = await answers(one);
    expect(text).not.toMatch(/push\.|select|insert|relation|127\.0\.0\.1|ECONN|postgres|stack/i);
    const lines = deployments.logs(one.on).split("\n");
    const cause = lines.find((line) => line.includes(headers.get("x-request-id") ?? "no id"));
    expect(cause).toMatch(one.on === "away" ? /ECONN/ : /does not exist/);
  });
});

test("every operation has reached every status that the document declares", () => {
  expectAllReached(100);
});
