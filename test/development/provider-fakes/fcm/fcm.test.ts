import { generateKeyPairSync } from "node:crypto";
import type { ClientHttp2Session } from "node:http2";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { type FcmFake, startFcmFake } from "../../../../src/development/provider-fakes/fcm/fcm.ts";
import { localhostCertificate } from "../../../support/localhost-certificate.ts";
import { movableClock } from "../../../support/movable-clock.ts";
import { suiteCleanup } from "../../../support/suite-cleanup.ts";
import {
  accessToken,
  assertion,
  assertionClaims,
  fcmMessage,
  postAssertion,
  seconds,
  send,
  session,
} from "../clients.ts";

const clock = movableClock();
let fake: FcmFake;
let bearer: string;

const cleanup = suiteCleanup();
beforeAll(async () => {
  fake = await startFcmFake({ clock });
  cleanup.defer(() => fake.close());
  bearer = await accessToken(fake.credentials);
});
afterEach(() => fake.clear());

function sendPath(project = fake.credentials.project_id): string {
  return `/v1/projects/${project}/messages:send`;
}

async function post(
  body: unknown,
  options: { token?: string; path?: string; client?: ClientHttp2Session } = {},
) {
  const { token = bearer, path = sendPath(), client = session(fake.origin) } = options;
  const headers = { ":method": "POST", ":path": path, authorization: `Bearer ${token}` };
  const { status, text } = await send(
    client,
    headers,
    typeof body === "string" ? body : JSON.stringify(body),
  );
  return { status, json: text.startsWith("{") ? JSON.parse(text) : text };
}

describe("the token endpoint", () => {
  it("issues bearer tokens for an assertion", async () => {
    const response = await postAssertion(fake.credentials.token_uri, await assertion(fake.credentials));
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual({
      access_token: expect.stringMatching(/^ya29\./),
      expires_in: 3599,
      token_type: "Bearer",
    });
  });

  it.each([
    ["another issuer", { iss: "somebody@else" }, "invalid_grant"],
    ["another audience", { aud: "https://oauth2.googleapis.com/token" }, "invalid_grant"],
    ["another scope", { scope: "https://www.googleapis.com/auth/drive" }, "invalid_scope"],
    ["more than an hour", { exp: seconds() + 3700 }, "invalid_grant"],
    ["the past", { iat: seconds() - 7200, exp: seconds() - 3700 }, "invalid_grant"],
    ["the future", { iat: seconds() + 3600, exp: seconds() + 3700 }, "invalid_grant"],
    ["no end", { exp: undefined }, "invalid_grant"],
  ])("refuses an assertion for %s", async (_, claims, error) => {
    const text = await assertion(fake.credentials, { ...assertionClaims(fake.credentials), ...claims });
    const response = await postAssertion(fake.credentials.token_uri, text);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error });
  });

  it("refuses what another key has signed", async () => {
    const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
    const pem = privateKey.export({ type: "pkcs8", format: "pem" }).toString();
    const text = await assertion(fake.credentials, undefined, pem);
    const response = await postAssertion(fake.credentials.token_uri, text);
    expect(await response.json()).toEqual({
      error: "invalid_grant",
      error_description: "Invalid JWT Signature.",
    });
  });

  it("plays its own failures, and they concern no message", async () => {
    fake.play({ on: "token", answer: "internal_failure", times: 1 });
    expect((await post({ message: fcmMessage("a") })).status).toBe(200);
    const text = await assertion(fake.credentials);
    expect((await postAssertion(fake.credentials.token_uri, text)).status).toBe(500);
    expect((await postAssertion(fake.credentials.token_uri, text)).status).toBe(200);
  });
});

describe("messages:send", () => {
  it("accepts a message and names it", async () => {
    const { status, json } = await post({ message: fcmMessage("device-1", "m-1", "n-1") });
    expect(status).toBe(200);
    expect(json).toEqual({
      name: expect.stringMatching(/^projects\/gatepost-fake\/messages\/0:\d+%[0-9a-f]{16}$/),
    });
    expect(fake.ledger.token("device-1")).toMatchObject({
      token: "device-1",
      count: 1,
      messages: [{ messageId: "m-1", collapseId: "n-1", count: 1 }],
    });
  });

  it("gives each message another name", async () => {
    const names = await Promise.all([1, 2, 3].map(() => post({ message: fcmMessage("a") })));
    expect(new Set(names.map(({ json }) => json.name)).size).toBe(3);
  });

  it("takes names of fields in camelCase too", async () => {
    const message = { token: "a", fcmOptions: { analyticsLabel: "x" }, android: { collapseKey: "k" } };
    expect((await post({ validateOnly: true, message })).status).toBe(200);
  });

  it("does not deliver what is only to be validated", async () => {
    const { status, json } = await post({ validate_only: true, message: fcmMessage("a") });
    expect(status).toBe(200);
    expect(json.name).toMatch(/fake_message_id$/);
    expect(fake.ledger.summary()).toMatchObject({ messages: 0 });
  });

  it("announces 100 streams", async () => {
    const client = session(fake.origin);
    await post({ message: fcmMessage("a") }, { client });
    expect(client.remoteSettings.maxConcurrentStreams).toBe(100);
  });

  it("is served over TLS with a certificate", async () => {
    const tls = await startFcmFake({ tls: localhostCertificate });
    try {
      expect(tls.origin).toMatch(/^https:/);
      const client = session(tls.origin, { ca: localhostCertificate.cert });
      const { status } = await send(client, { ":method": "POST", ":path": sendPath() }, "{}");
      expect(status).toBe(401);
    } finally {
      await tls.close();
    }
  });

  const big = "x".repeat(4100);
  it.each<[string, unknown, string]>([
    ["an unknown field", { message: { ...fcmMessage("a"), prio: 1 } }, "message"],
    [
      "an unknown field deeper down",
      { message: { token: "a", android: { notification: { tags: "x" } } } },
      "message.android.notification",
    ],
    [
      "data that is no string",
      { message: { token: "a", data: { one: "1", two: 2 } } },
      "message.data[1].value",
    ],
    [
      "a number as title",
      { message: { token: "a", notification: { title: 1 } } },
      "message.notification.title",
    ],
    [
      "an unknown priority",
      { message: { token: "a", android: { priority: "urgent" } } },
      "message.android.priority",
    ],
    ["no message", {}, "message"],
    ["no target", { message: { data: {} } }, "message"],
    ["two targets", { message: { token: "a", topic: "b" } }, "message"],
    ["a token that cannot be one", { message: { token: "a b" } }, "message.token"],
    ["a reserved name", { message: { token: "a", data: { "google.x": "1" } } }, "message.data"],
    ["a TTL without unit", { message: { token: "a", android: { ttl: "3600" } } }, "message.android.ttl"],
    ["a TTL as number", { message: { token: "a", android: { ttl: 3600 } } }, "message.android.ttl"],
    [
      "a TTL above four weeks",
      { message: { token: "a", android: { ttl: "2419201s" } } },
      "message.android.ttl",
    ],
    ["a negative TTL", { message: { token: "a", android: { ttl: "-1s" } } }, "message.android.ttl"],
    [
      "a link of the web without TLS",
      { message: { token: "a", webpush: { fcm_options: { link: "http://example.com/" } } } },
      "message.webpush.fcm_options.link",
    ],
    [
      "data alone in a hurry, for Apple's devices",
      { message: { token: "a", data: {}, apns: { headers: { "apns-priority": "10" } } } },
      "message.apns.headers",
    ],
    ["too much data", { message: { token: "a", data: { text: big } } }, "message.android"],
    ["too much text", { message: { token: "a", notification: { body: big } } }, "message.android"],
    [
      "too much for APNs",
      { message: { token: "a", apns: { payload: { aps: { alert: big } } } } },
      "message.apns.payload",
    ],
  ])("refuses %s and names the field", async (_, body, field) => {
    const { status, json } = await post(body);
    expect(status).toBe(400);
    expect(json.error).toMatchObject({ code: 400, status: "INVALID_ARGUMENT" });
    const details: { "@type": string }[] = json.error.details;
    expect(details.find((one) => one["@type"] === "type.googleapis.com/google.rpc.BadRequest")).toMatchObject(
      {
        fieldViolations: [{ field, description: expect.any(String) }],
      },
    );
    expect(fake.ledger.summary()).toMatchObject({ messages: 0, answers: { INVALID_ARGUMENT: 1 } });
  });

  it("accepts the longest TTL and a payload of 4096 bytes", async () => {
    const message = { token: "a", android: { ttl: "2419200s" }, data: { text: "x".repeat(4092) } };
    expect((await post({ message })).status).toBe(200);
    expect((await post({ message: { token: "a", data: { text: "x".repeat(4093) } } })).status).toBe(400);
  });

  it("refuses what is no JSON", async () => {
    expect((await post("{")).json.error.status).toBe("INVALID_ARGUMENT");
  });

  it("refuses bearer tokens that it did not issue, or whose time is over", async () => {
    const unknown = await post({ message: fcmMessage("a") }, { token: "ya29.unknown" });
    expect(unknown).toMatchObject({ status: 401, json: { error: { status: "UNAUTHENTICATED" } } });
    clock.move(3598);
    expect((await post({ message: fcmMessage("a") })).status).toBe(200);
    clock.move(1);
    expect((await post({ message: fcmMessage("a") })).status).toBe(401);
    clock.move(-3599);
  });

  it("refuses all bearer tokens once they are made to expire", async () => {
    const token = await accessToken(fake.credentials);
    fake.expireAccessTokens();
    expect((await post({ message: fcmMessage("a") }, { token })).status).toBe(401);
    bearer = await accessToken(fake.credentials);
    expect((await post({ message: fcmMessage("a") })).status).toBe(200);
  });

  it("refuses another project, and knows no other path", async () => {
    const other = await post({ message: fcmMessage("a") }, { path: sendPath("other") });
    expect(other).toMatchObject({ status: 403, json: { error: { status: "PERMISSION_DENIED" } } });
    expect((await post({}, { path: "/v1/messages:send" })).status).toBe(404);
  });

  it.each([
    ["INVALID_ARGUMENT", 400, "INVALID_ARGUMENT", "INVALID_ARGUMENT"],
    ["INVALID_TOKEN", 400, "INVALID_ARGUMENT", "INVALID_ARGUMENT"],
    ["UNAUTHENTICATED", 401, "UNAUTHENTICATED", undefined],
    ["THIRD_PARTY_AUTH_ERROR", 401, "UNAUTHENTICATED", "THIRD_PARTY_AUTH_ERROR"],
    ["SENDER_ID_MISMATCH", 403, "PERMISSION_DENIED", "SENDER_ID_MISMATCH"],
    ["UNREGISTERED", 404, "NOT_FOUND", "UNREGISTERED"],
    ["INVALID_TOKEN_IN_WORDS", 400, "INVALID_ARGUMENT", "INVALID_ARGUMENT"],
    ["QUOTA_EXCEEDED", 429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED"],
    ["DEVICE_QUOTA_EXCEEDED", 429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED"],
    ["INTERNAL", 500, "INTERNAL", "INTERNAL"],
    ["UNAVAILABLE", 503, "UNAVAILABLE", "UNAVAILABLE"],
  ] as const)("plays %s", async (answer, status, name, errorCode) => {
    fake.play({ answer });
    const response = await post({ message: fcmMessage("a") });
    expect(response).toMatchObject({ status, json: { error: { code: status, status: name } } });
    const details: { "@type": string; errorCode?: string }[] = response.json.error.details;
    const fcmError = details.find((one) => one["@type"].endsWith("google.firebase.fcm.v1.FcmError"));
    expect(fcmError?.errorCode).toBe(errorCode);
    expect(fake.ledger.summary()).toMatchObject({ messages: 0, answers: { [answer]: 1 } });
  });

  it("plays 502 with an HTML body", async () => {
    fake.play({ answer: "BAD_GATEWAY" });
    const { status, json } = await post({ message: fcmMessage("a") });
    expect(status).toBe(502);
    expect(json).toMatch(/^<!DOCTYPE html>/);
  });

  it.each([
    ["unregistered-1", 404],
    ["invalid-1", 400],
    ["mismatch-1", 403],
    ["quota-1", 429],
    ["internal-1", 500],
    ["badgateway-1", 502],
    ["unavailable-1", 503],
    ["registered-unregistered-1", 200],
  ])("answers the token %s with %i, by its name", async (token, status) => {
    expect((await post({ message: fcmMessage(token) })).status).toBe(status);
  });
});
