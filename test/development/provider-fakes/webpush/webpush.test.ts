import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { newVapidCredentials } from "../../../../src/development/provider-fakes/credentials.ts";
import type { PushSubscription } from "../../../../src/development/provider-fakes/webpush/subscriptions.ts";
import {
  startWebPushFake,
  type WebPushFake,
} from "../../../../src/development/provider-fakes/webpush/webpush.ts";
import { suiteCleanup } from "../../../support/suite-cleanup.ts";
import { seconds, send, session, vapid } from "../clients.ts";
import { encryptPush } from "./push-encryption.ts";

let fake: WebPushFake;
let authorization: string;

const cleanup = suiteCleanup();
beforeAll(async () => {
  fake = await startWebPushFake();
  cleanup.defer(() => fake.close());
  authorization = await vapid(fake.credentials, fake.origin);
});
afterEach(() => fake.clear());

const message = JSON.stringify({ title: "Grüße", messageId: "m-1", tag: "n-1" });

/** Headers that are undefined are omitted. */
async function push(
  subscription: PushSubscription,
  headers: Record<string, string | undefined> = {},
  body?: Buffer,
): Promise<globalThis.Response> {
  const all = { ttl: "60", "content-encoding": "aes128gcm", authorization, ...headers };
  const given = Object.entries(all).filter((one): one is [string, string] => one[1] !== undefined);
  return fetch(subscription.endpoint, {
    method: "POST",
    headers: given,
    body: new Uint8Array(body ?? (await encryptPush(subscription, message))),
  });
}

const idOf = ({ endpoint }: PushSubscription) => endpoint.slice(endpoint.lastIndexOf("/") + 1);

describe("a push service", () => {
  it("takes a message to the browser, which decrypts it", async () => {
    const subscription = fake.subscribe();
    const response = await push(subscription, { urgency: "high", topic: "abc-_1" });
    expect(response.status).toBe(201);
    expect(response.headers.get("location")).toMatch(/\/message\/\d+$/);
    expect(response.headers.get("ttl")).toBe("60");
    expect(fake.ledger.recent().map(({ payload }) => payload)).toEqual([message]);
    expect(fake.ledger.token(idOf(subscription))?.messages).toMatchObject([
      { messageId: "m-1", collapseId: "n-1", count: 1 },
    ]);
  });

  it("speaks HTTP/2 on the same port", async () => {
    const subscription = fake.subscribe();
    const headers = {
      ":method": "POST",
      ":path": new URL(subscription.endpoint).pathname,
      authorization,
      ttl: "0",
      "content-encoding": "aes128gcm",
    };
    const body = await encryptPush(subscription, message);
    expect((await send(session(fake.origin), headers, body)).status).toBe(201);
  });

  it("takes padding away", async () => {
    const subscription = fake.subscribe();
    const body = await encryptPush(subscription, message, { ending: [2, 0, 0, 0] });
    expect((await push(subscription, {}, body)).status).toBe(201);
    expect(fake.ledger.recent()[0]?.payload).toBe(message);
  });

  it("gives each subscription keys of its own, and the same ones after a restart with the same seed", async () => {
    const seed = Buffer.alloc(32, 7);
    const { credentials } = fake;
    const before = await startWebPushFake({ seed, credentials });
    const [one, other] = [before.subscribe("one"), before.subscribe("other")];
    expect(one.keys.p256dh).not.toBe(other.keys.p256dh);
    await before.close();
    const after = await startWebPushFake({ seed, credentials, port: Number(new URL(before.origin).port) });
    try {
      const response = await push(one, { authorization: await vapid(credentials, after.origin) });
      expect(response.status).toBe(201);
    } finally {
      await after.close();
    }
  });

  it("takes a message without a body", async () => {
    const response = await push(fake.subscribe(), { "content-encoding": undefined }, Buffer.alloc(0));
    expect(response.status).toBe(201);
  });

  it.each<[string, number, Record<string, string | undefined>]>([
    ["no TTL", 400, { ttl: undefined }],
    ["a TTL that is no number", 400, { ttl: "1h" }],
    ["a negative TTL", 400, { ttl: "-1" }],
    ["an unknown Urgency", 400, { urgency: "urgent" }],
    ["a Topic of 33 characters", 400, { topic: "x".repeat(33) }],
    ["a Topic with other characters", 400, { topic: "a.b" }],
    ["another Content-Encoding", 400, { "content-encoding": "aesgcm" }],
    ["no Content-Encoding", 400, { "content-encoding": undefined }],
    ["no Authorization", 401, { authorization: undefined }],
    ["another scheme", 401, { authorization: "Bearer x" }],
    ["a token that is none", 401, { authorization: "vapid t=a.b.c, k=BAAA" }],
  ])("refuses %s with %i", async (_, status, headers) => {
    expect((await push(fake.subscribe(), headers)).status).toBe(status);
    expect(fake.ledger.summary().messages).toBe(0);
  });

  it.each<[string, Record<string, unknown>]>([
    ["another audience", { aud: "https://push.example.com" }],
    ["an audience with a path", { aud: "http://127.0.0.1/push" }],
    ["more than 24 hours", { exp: seconds() + 90_000 }],
    ["the past", { exp: seconds() - 3600 }],
    ["no end", { exp: undefined }],
    ["no contact", { sub: undefined }],
    ["a contact that is no URI", { sub: "push@example.com" }],
  ])("refuses a VAPID token for %s", async (_, claims) => {
    const wrong = await vapid(fake.credentials, fake.origin, claims);
    expect((await push(fake.subscribe(), { authorization: wrong })).status).toBe(401);
  });

  it("refuses a token that another key has signed than it names", async () => {
    const other = newVapidCredentials();
    const wrong = (await vapid(other, fake.origin)).replace(other.publicKey, fake.credentials.publicKey);
    expect((await push(fake.subscribe(), { authorization: wrong })).status).toBe(401);
  });

  it("refuses an application server that the subscription was not made for", async () => {
    const other = await vapid(newVapidCredentials(), fake.origin);
    expect((await push(fake.subscribe(), { authorization: other })).status).toBe(403);
  });

  it("refuses a body above 4096 bytes, and takes one of 4096", async () => {
    const subscription = fake.subscribe();
    // Header 86, tag 16, delimiter 1.
    const longest = await encryptPush(subscription, "x".repeat(4096 - 103));
    expect(longest.length).toBe(4096);
    expect((await push(subscription, {}, longest)).status).toBe(201);
    const longer = await encryptPush(subscription, "x".repeat(4097 - 103));
    expect((await push(subscription, {}, longer)).status).toBe(413);
  });

  it.each<[string, (own: PushSubscription) => Promise<Buffer>]>([
    ["for another subscription", () => encryptPush(fake.subscribe(), message)],
    ["not at all", async () => Buffer.from(message.repeat(3))],
    ["without the last record's delimiter", (own) => encryptPush(own, message, { ending: [] })],
    ["as a record that is not the last", (own) => encryptPush(own, message, { ending: [1] })],
    ["in more than one record", (own) => encryptPush(own, message, { recordSize: 40 })],
  ])("refuses what is encrypted %s", async (_, make) => {
    const subscription = fake.subscribe();
    expect((await push(subscription, {}, await make(subscription))).status).toBe(400);
    expect(fake.ledger.summary().messages).toBe(0);
  });

  it("answers 404 where there is no subscription, and 410 where one has ended", async () => {
    const subscription = fake.subscribe();
    const unknown = { ...subscription, endpoint: `${fake.origin}/push/unknown` };
    expect((await push(unknown)).status).toBe(404);
    expect((await push(subscription)).status).toBe(201);
    fake.unsubscribe(subscription);
    expect((await push(subscription)).status).toBe(410);
  });

  it.each([
    ["BadRequest", 400],
    ["VapidPkHashMismatch", 400],
    ["UnauthorizedRegistration", 400],
    ["VapidKeyMismatch", 401],
    ["Unauthorized", 401],
    ["Forbidden", 403],
    ["NotFound", 404],
    ["Gone", 410],
    ["PayloadTooLarge", 413],
    ["TooManyRequests", 429],
    ["InternalServerError", 500],
    ["BadGateway", 502],
    ["ServiceUnavailable", 503],
  ] as const)("plays %s", async (answer, status) => {
    fake.play({ answer, retryAfter: 3 });
    const response = await push(fake.subscribe());
    expect(response.status).toBe(status);
    expect(response.headers.get("retry-after")).toBe("3");
    expect((await response.text()).startsWith("<html>")).toBe(status === 502);
  });

  it.each([
    ["gone-1", 410],
    ["notfound-1", 404],
    ["toomany-1", 429],
    ["unavailable-1", 503],
    ["sample", 201],
  ])("answers the subscription %s with %i, by its name", async (name, status) => {
    expect((await push(fake.subscribe(name))).status).toBe(status);
  });

  it("cuts an HTTP/1.1 connection too, after recording the message", async () => {
    fake.play({ fault: "disconnect-after-accept" });
    await expect(push(fake.subscribe())).rejects.toThrow("fetch failed");
    expect(fake.ledger.summary().messages).toBe(1);
  });
});
