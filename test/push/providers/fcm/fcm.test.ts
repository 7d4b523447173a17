import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { type FcmFake, startFcmFake } from "../../../../src/development/provider-fakes/fcm/fcm.ts";
import type { FcmRow } from "../../../../src/development/provider-fakes/fcm/fcm-responses.ts";
import type { Scenario } from "../../../../src/development/provider-fakes/scenario.ts";
import type { FcmProvider } from "../../../../src/push/providers/fcm/fcm.ts";
import type { Outcome } from "../../../../src/push/providers/provider.ts";
import { movableClock } from "../../../support/movable-clock.ts";
import { suiteCleanup } from "../../../support/suite-cleanup.ts";
import { content, fcmOf, kindsOf, recipient, sendOne } from "../providers-fixture.ts";

const token = `fcm-token:${"A".repeat(140)}`;
let fake: FcmFake;
let fcm: FcmProvider;

const cleanup = suiteCleanup();
beforeAll(async () => {
  fake = await startFcmFake();
  cleanup.defer(() => fake.close());
  fcm = fcmOf(fake);
  cleanup.defer(() => fcm.close());
});
afterEach(() => fake.clear());

async function outcomeOf(scenario: Scenario<FcmRow>): Promise<Outcome> {
  const playing = fake.play(scenario);
  const outcome = await sendOne(fcm, token);
  playing.stop();
  return outcome;
}

describe("a message", () => {
  test("has everything that a device needs, and collapses with its repeats", async () => {
    const what = content();
    const to = recipient(token);
    expect(await fcm.prepare(what)(to)).toEqual({ kind: "sent" });
    const [accepted] = fake.ledger.recent();
    expect(accepted).toMatchObject({ token, messageId: to.messageId, collapseId: what.notificationId });
    expect(accepted?.payload).toEqual({
      token,
      data: { notificationId: what.notificationId, messageId: to.messageId },
      notification: { title: what.title, body: what.message, image: what.imageUrl },
      android: {
        ttl: "3600s",
        priority: "high",
        notification: { tag: what.notificationId },
      },
      apns: {
        headers: {
          "apns-collapse-id": what.notificationId,
          "apns-expiration": String(Math.floor(what.expiresAt / 1000)),
        },
        payload: { aps: { "mutable-content": 1 } },
      },
      webpush: { headers: { TTL: "3600" }, notification: { tag: what.notificationId.replaceAll("-", "") } },
    });
  });

  test("has a TTL of four weeks at most, and of nothing when it has expired", async () => {
    const ttl = async (expiresAt: number): Promise<unknown> => {
      await fcm.prepare(content({ expiresAt }))(recipient(token));
      return fake.ledger.recent().at(-1)?.payload;
    };
    expect(await ttl(Date.now() + 1e12)).toMatchObject({ android: { ttl: "2419200s" } });
    expect(await ttl(Date.now() - 1000)).toMatchObject({ android: { ttl: "0s" } });
  });

  test("is shortened to what FCM carries, between characters", async () => {
    const message = "👩‍👩‍👧".repeat(222);
    const send = fcm.prepare(content({ title: '"'.repeat(256), message }));
    expect(await send(recipient(token))).toEqual({ kind: "sent" });
    expect(fake.ledger.recent().at(-1)?.payload).toMatchObject({
      notification: { body: expect.stringMatching(/^(👩‍👩‍👧)+…$/u) },
    });
  });

  test("goes to the token that it is for, whatever characters that has", async () => {
    const outcome = await sendOne(fcm, 'x","topic":"all');
    expect(outcome).toEqual({ kind: "dead", reason: "400 INVALID_ARGUMENT" });
    expect(fake.ledger.summary().messages).toBe(0);
  });
});

describe("an answer of FCM", () => {
  const html = { headers: { "content-type": "text/html" }, body: "<title>Error</title>" };
  test.each<[string, Scenario<FcmRow>, Outcome]>([
    ["400 about the token", { answer: "INVALID_TOKEN" }, { kind: "dead", reason: "400 INVALID_ARGUMENT" }],
    [
      "400 about the rest",
      { answer: "INVALID_ARGUMENT" },
      { kind: "failed", reason: "400 INVALID_ARGUMENT" },
    ],
    ["400 in HTML", { answer: { status: 400, ...html } }, { kind: "failed", reason: "400" }],
    ["401", { answer: "UNAUTHENTICATED" }, { kind: "refused", reason: "401 UNAUTHENTICATED" }],
    [
      "401 of a third party",
      { answer: "THIRD_PARTY_AUTH_ERROR" },
      { kind: "blocked", reason: "401 THIRD_PARTY_AUTH_ERROR" },
    ],
    ["403", { answer: "PERMISSION_DENIED" }, { kind: "refused", reason: "403 PERMISSION_DENIED" }],
    [
      "403 of another sender's token",
      { answer: "SENDER_ID_MISMATCH" },
      { kind: "foreign", reason: "403 SENDER_ID_MISMATCH" },
    ],
    ["404 of a token", { answer: "UNREGISTERED" }, { kind: "dead", reason: "404 UNREGISTERED" }],
    ["404 of something else", { answer: { status: 404, ...html } }, { kind: "refused", reason: "404" }],
    [
      "404 of a project",
      { answer: { status: 404, body: '{"error":{"status":"NOT_FOUND"}}' } },
      { kind: "refused", reason: "404 NOT_FOUND" },
    ],
    [
      "429",
      { answer: "QUOTA_EXCEEDED" },
      { kind: "retry", isThrottled: true, afterMs: 60_000, reason: "429 QUOTA_EXCEEDED" },
    ],
    [
      "429 of a device",
      { answer: "DEVICE_QUOTA_EXCEEDED" },
      { kind: "retry", isThrottled: true, afterMs: 60_000, reason: "429 QUOTA_EXCEEDED" },
    ],
    [
      "429 with a time",
      { answer: "QUOTA_EXCEEDED", retryAfter: 7 },
      { kind: "retry", isThrottled: true, afterMs: 7_000, reason: "429 QUOTA_EXCEEDED" },
    ],
    [
      "429 with nonsense",
      { answer: "QUOTA_EXCEEDED", retryAfter: "soon" },
      { kind: "retry", isThrottled: true, afterMs: 60_000, reason: "429 QUOTA_EXCEEDED" },
    ],
    [
      "429 with a year",
      { answer: "QUOTA_EXCEEDED", retryAfter: 31_536_000 },
      { kind: "retry", isThrottled: true, afterMs: 86_400_000, reason: "429 QUOTA_EXCEEDED" },
    ],
    ["202, as any 2xx", { answer: { status: 202 } }, { kind: "sent" }],
    ["500", { answer: "INTERNAL" }, { kind: "retry", afterMs: 10_000, reason: "500 INTERNAL" }],
    ["502 in HTML", { answer: "BAD_GATEWAY" }, { kind: "retry", afterMs: 10_000, reason: "502" }],
    ["503", { answer: "UNAVAILABLE" }, { kind: "retry", afterMs: 10_000, reason: "503 UNAVAILABLE" }],
    [
      "503 with a time",
      { answer: "UNAVAILABLE", retryAfter: 30 },
      { kind: "retry", afterMs: 30_000, reason: "503 UNAVAILABLE" },
    ],
    [
      "504 with a time",
      { answer: { status: 504, headers: { "retry-after": "3" } } },
      { kind: "retry", afterMs: 3_000, reason: "504" },
    ],
    ["an unknown status", { answer: { status: 418 } }, { kind: "failed", reason: "418" }],
    [
      "JSON of another form",
      { answer: { status: 400, body: '{"error":{"details":{"0":null}}}' } },
      { kind: "failed", reason: "400" },
    ],
    [
      "a code that quotes the token",
      { answer: { status: 400, body: `{"error":{"status":"${token}"}}` } },
      { kind: "failed", reason: "400" },
    ],
    [
      "a body without an end",
      { answer: { status: 403, body: "x".repeat(5_000_000) } },
      { kind: "refused", reason: "403" },
    ],
    [
      "404 of a token that is cut by a lost connection",
      { answer: "UNREGISTERED", cut: true },
      { kind: "retry", afterMs: 10_000, reason: "404, cut short" },
    ],
    [
      "403 that is cut by a lost connection",
      { answer: "PERMISSION_DENIED", cut: true },
      { kind: "retry", afterMs: 10_000, reason: "403, cut short" },
    ],
    ["200 that is cut by a lost connection", { answer: { status: 200 }, cut: true }, { kind: "sent" }],
    [
      "503 that is cut by a lost connection",
      { answer: "UNAVAILABLE", retryAfter: 30, cut: true },
      { kind: "retry", afterMs: 30_000, reason: "503" },
    ],
    [
      "no answer: the stream is reset",
      { fault: "reset" },
      { kind: "retry", afterMs: 10_000, reason: "RST_STREAM 2" },
    ],
  ])("%s", async (_, scenario, outcome) => {
    expect(await outcomeOf(scenario)).toEqual(outcome);
    expect(await sendOne(fcm, token), "afterwards it works").toEqual({ kind: "sent" });
  });

  test("401 of a third party is not answered with a new access token for each message", async () => {
    const sender = fcmOf(fake);
    await sendOne(sender, token);
    fake.play({ answer: "THIRD_PARTY_AUTH_ERROR" });
    const renewals = fake.play({ on: "token", answer: "internal_failure" });
    for (let nth = 0; nth < 5; nth += 1)
      expect(await sendOne(sender, token)).toMatchObject({ kind: "blocked" });
    expect(renewals.played).toBe(0);
    await sender.close();
  });

  test("429 with a date", async () => {
    const retryAfter = new Date(Date.now() + 20_000).toUTCString();
    const outcome = await outcomeOf({ answer: "QUOTA_EXCEEDED", retryAfter });
    expect(outcome).toMatchObject({ kind: "retry" });
    expect("afterMs" in outcome && outcome.afterMs).toBeGreaterThan(15_000);
  });
});

describe("the self-test", () => {
  test("passes where FCM accepts our credentials, and reaches no device", async () => {
    expect(await fcm.selfTest()).toEqual({ kind: "sent" });
    expect(fake.ledger.summary().messages).toBe(0);
  });

  test.each<[FcmRow, Outcome["kind"]]>([
    ["UNAUTHENTICATED", "refused"],
    ["PERMISSION_DENIED", "refused"],
    ["UNAVAILABLE", "retry"],
  ])("says so where it meets %s", async (answer, kind) => {
    const playing = fake.play({ answer });
    expect(await fcm.selfTest()).toMatchObject({ kind });
    playing.stop();
  });
});

describe("the access token", () => {
  const parallel = (sender: FcmProvider, count: number): Promise<Outcome[]> => {
    const send = sender.prepare(content());
    return Promise.all(Array.from({ length: count }, (_, index) => send(recipient(`${token}${index}`))));
  };

  test("is fetched once for 200 messages at once", async () => {
    const sender = fcmOf(fake);
    const fetches = fake.play({ on: "token", delayMs: 50 });
    expect(kindsOf(await parallel(sender, 200))).toEqual({ sent: 200 });
    expect(fetches.played).toBe(1);
    await sender.close();
  });

  test("that is not taken any more is replaced once for all messages", async () => {
    const sender = fcmOf(fake);
    await sendOne(sender, token);
    fake.expireAccessTokens();
    const fetches = fake.play({ on: "token", delayMs: 50 });
    expect(kindsOf(await parallel(sender, 200))).toEqual({ sent: 200 });
    expect(fetches.played).toBe(1);
    await sender.close();
  });

  test("that is refused twice is not asked for a third time", async () => {
    const sender = fcmOf(fake);
    const fetches = fake.play({ on: "token", delayMs: 1 });
    fake.play({ answer: "UNAUTHENTICATED" });
    expect(await sendOne(sender, token)).toEqual({ kind: "refused", reason: "401 UNAUTHENTICATED" });
    expect(fetches.played).toBe(2);
    await sender.close();
  });

  test("is renewed before it expires, while the old one is used", async () => {
    const clock = movableClock();
    const moved = await startFcmFake({ clock });
    const sender = fcmOf(moved, clock);
    await sendOne(sender, token);
    const fetches = moved.play({ on: "token", delayMs: 50 });
    clock.move(3599 - 301);
    expect(await sendOne(sender, token)).toEqual({ kind: "sent" });
    expect(fetches.played).toBe(0);
    clock.move(2);
    expect(kindsOf(await parallel(sender, 20))).toEqual({ sent: 20 });
    await expect.poll(() => fetches.played).toBe(1);
    await sender.close();
    await moved.close();
  });

  test.each<Scenario<FcmRow>>([
    { answer: "invalid_grant" },
    { answer: "internal_failure" },
    { answer: { status: 429 } },
    { answer: { status: 200, body: "{}" } },
  ])("is had though one response refuses it: %o", async (scenario) => {
    const sender = fcmOf(fake);
    fake.play({ ...scenario, on: "token", times: 1 });
    expect(kindsOf(await parallel(sender, 20))).toEqual({ sent: 20 });
    await sender.close();
  });

  test("that cannot be had stops the messages, and is asked for again after a while", async () => {
    const clock = movableClock();
    const sender = fcmOf(fake, clock);
    const fetches = fake.play({ on: "token", answer: "internal_failure" });
    const outcome = { kind: "unavailable", afterMs: 10_000, reason: "OAuth: 500" };
    for (const each of await parallel(sender, 50)) expect(each).toEqual(outcome);
    expect(await sendOne(sender, token)).toEqual(outcome);
    expect(fetches.played).toBe(2);
    fetches.stop();
    clock.move(3);
    expect(await sendOne(sender, token)).toEqual({ kind: "sent" });
    await sender.close();
  });

  test.each<[string, Scenario<FcmRow>, Outcome]>([
    ["a bad grant", { answer: "invalid_grant" }, { kind: "refused", reason: "OAuth: invalid_grant" }],
    ["too many", { answer: { status: 429 } }, { kind: "unavailable", afterMs: 60_000, reason: "OAuth: 429" }],
    [
      "an empty answer",
      { answer: { status: 200, body: "{}" } },
      { kind: "unavailable", reason: "OAuth: 200 without a token" },
    ],
    [
      "a token that is no header",
      { answer: { status: 200, body: '{"access_token":"a\\nb","expires_in":9}' } },
      { kind: "unavailable", reason: "OAuth: 200 without a token" },
    ],
    ["a reset", { fault: "reset" }, { kind: "unavailable", afterMs: 10_000, reason: "OAuth: RST_STREAM 2" }],
  ])("is not had: %s", async (_, scenario, outcome) => {
    const sender = fcmOf(fake);
    fake.play({ ...scenario, on: "token" });
    const got = await sendOne(sender, token);
    expect(got.kind === "sent" ? got : { ...got, reason: got.reason.replace("400 ", "") }).toEqual(outcome);
    await sender.close();
  });
});

describe("what connections do", () => {
  const count = 400;
  async function sendAll(sender: FcmProvider): Promise<Outcome[]> {
    const send = sender.prepare(content());
    const outcomes: Outcome[] = [];
    let open = Array.from({ length: count }, (_, index) => recipient(`${token}${index}`));
    for (let round = 0; open.length > 0 && round < 5; round += 1) {
      const results = await Promise.all(open.map(send));
      outcomes.push(...results);
      open = open.filter((_, index) => results[index]?.kind === "retry");
    }
    return outcomes;
  }

  test("GOAWAY: messages that FCM did not look at go over another connection, none is lost", async () => {
    fake.play({ fault: "goaway", times: 3 });
    expect(kindsOf(await sendAll(fcm))).toEqual({ sent: count });
    expect(fake.ledger.summary()).toMatchObject({ tokens: count, repeats: 0 });
  });

  test.each<Scenario<FcmRow>>([
    { fault: "goaway", code: 2, times: 2 },
    { fault: "disconnect", times: 2 },
    { fault: "disconnect-after-accept", times: 2 },
    { fault: "reset-after-accept", share: 0.1, times: 20 },
  ])("a broken connection: what is not known is told and tried again, none is lost: %o", async (scenario) => {
    fake.play(scenario);
    const outcomes = await sendAll(fcm);
    const { sent, retry = 0, ...others } = kindsOf(outcomes);
    expect(sent).toBe(count);
    expect(retry).toBeGreaterThan(0);
    expect(others).toEqual({});
    expect(fake.ledger.summary()).toMatchObject({ tokens: count, tokensNotifiedTwice: 0 });
  });

  test("refused connections: nothing can be sent, and then it can", async () => {
    const sender = fcmOf(fake);
    await sendOne(sender, token);
    const playing = fake.play({ fault: "refuse-connections" });
    const unavailable = { kind: "unavailable", hasNoResponse: true };
    await expect.poll(() => sendOne(sender, token)).toEqual({ ...unavailable, reason: "ECONNREFUSED" });
    playing.stop();
    await expect.poll(() => sendOne(sender, token)).toEqual({ kind: "sent" });
    await sender.close();
  });

  test("close lets requests in flight finish", async () => {
    const sender = fcmOf(fake);
    fake.play({ delayMs: 200 });
    await sendOne(sender, token);
    const sending = sendOne(sender, token);
    await sender.close();
    expect(await sending).toEqual({ kind: "sent" });
    expect(await sendOne(sender, token)).toMatchObject({ kind: "unavailable", reason: "closed" });
  });
});

test.each([
  ["", false],
  ["a b", false],
  ['a"b', false],
  ["a\n", false],
  [token, true],
  ["x".repeat(4097), false],
])("a registration token: %j", (text, isOne) => {
  expect(fcm.tokenProblem(text) === undefined).toBe(isOne);
});
