import { once } from "node:events";
import { createServer, type Http2Session } from "node:http2";
import type { AddressInfo } from "node:net";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { type ApnsFake, startApnsFake } from "../../../../src/development/provider-fakes/apns/apns.ts";
import type { ApnsReason } from "../../../../src/development/provider-fakes/apns/apns-responses.ts";
import type { Scenario } from "../../../../src/development/provider-fakes/scenario.ts";
import type { ApnsProvider } from "../../../../src/push/providers/apns/apns.ts";
import { ApnsToken } from "../../../../src/push/providers/apns/apns-token.ts";
import type { Outcome } from "../../../../src/push/providers/provider.ts";
import { suiteCleanup } from "../../../support/suite-cleanup.ts";
import { apnsOf, content, kindsOf, recipient, sendOne } from "../providers-fixture.ts";

const token = "ab".repeat(32);
let fake: ApnsFake;
let apns: ApnsProvider;

const cleanup = suiteCleanup();
beforeAll(async () => {
  fake = await startApnsFake();
  cleanup.defer(() => fake.close());
  apns = apnsOf(fake);
  cleanup.defer(() => apns.close());
});
afterEach(() => fake.clear());

const tokenOf = (index: number): string => index.toString(16).padStart(64, "0");

describe("a message", () => {
  test("has everything that a device needs, and collapses with its repeats", async () => {
    const what = content();
    const to = recipient(token);
    expect(await apns.prepare(what)(to)).toEqual({ kind: "sent" });
    expect(fake.ledger.recent()).toEqual([
      {
        token,
        messageId: to.messageId,
        collapseId: what.notificationId,
        payload: {
          aps: { alert: { title: what.title, body: what.message }, "mutable-content": 1 },
          notificationId: what.notificationId,
          imageUrl: what.imageUrl,
        },
      },
    ]);
  });

  test("has nothing of an image without one", async () => {
    const { notificationId, title, message } = content();
    const send = apns.prepare(content({ notificationId, title, message, imageUrl: undefined }));
    await send(recipient(token));
    const payload = { aps: { alert: { title, body: message } }, notificationId };
    expect(fake.ledger.recent()[0]?.payload).toEqual(payload);
  });

  test("is shortened to what APNs carries", async () => {
    const send = apns.prepare(content({ title: "t".repeat(256), message: "ü".repeat(2000) }));
    expect(await send(recipient(token))).toEqual({ kind: "sent" });
  });

  test.each(["", "zz".repeat(32), `${token}/../x`, `${token}\r\nx: y`, "ab".repeat(101)])(
    "does not go to what is no device token: %j",
    async (text) => {
      expect(apns.tokenProblem(text)).toBeDefined();
      expect(await sendOne(apns, text)).toEqual({ kind: "failed", reason: "not a device token" });
    },
  );

  test.each([token, token.toUpperCase(), "ab".repeat(100)])("a device token: %j", (text) => {
    expect(apns.tokenProblem(text)).toBeUndefined();
  });
});

describe("an answer of APNs", () => {
  const since = 1_700_000_000_000;
  test.each<[ApnsReason, Omit<Scenario, "answer">, Outcome]>([
    ["BadDeviceToken", {}, { kind: "dead", reason: "400 BadDeviceToken" }],
    ["DeviceTokenNotForTopic", {}, { kind: "foreign", reason: "400 DeviceTokenNotForTopic" }],
    ["BadTopic", {}, { kind: "refused", reason: "400 BadTopic" }],
    ["TopicDisallowed", {}, { kind: "refused", reason: "400 TopicDisallowed" }],
    ["MissingTopic", {}, { kind: "refused", reason: "400 MissingTopic" }],
    ["BadPriority", {}, { kind: "failed", reason: "400 BadPriority" }],
    ["Unregistered", { cut: true }, { kind: "retry", afterMs: 10_000, reason: "410, cut short" }],
    ["InvalidProviderToken", {}, { kind: "refused", isConfirmed: true, reason: "403 InvalidProviderToken" }],
    ["Forbidden", {}, { kind: "refused", isConfirmed: true, reason: "403 Forbidden" }],
    ["BadPath", {}, { kind: "failed", reason: "404 BadPath" }],
    ["MethodNotAllowed", {}, { kind: "failed", reason: "405 MethodNotAllowed" }],
    ["Unregistered", { timestamp: since }, { kind: "dead", asOf: since, reason: "410 Unregistered" }],
    ["ExpiredToken", { timestamp: since }, { kind: "dead", asOf: since, reason: "410 ExpiredToken" }],
    // A time that cannot be one is none.
    ["ExpiredToken", { timestamp: 1e300 }, { kind: "dead", reason: "410 ExpiredToken" }],
    ["ExpiredToken", { timestamp: -1 }, { kind: "dead", reason: "410 ExpiredToken" }],
    ["PayloadTooLarge", {}, { kind: "failed", reason: "413 PayloadTooLarge" }],
    ["TooManyRequests", {}, { kind: "retry", isOwn: true, afterMs: 10_000, reason: "429 TooManyRequests" }],
    [
      "TooManyRequests",
      { retryAfter: 9 },
      { kind: "retry", isOwn: true, afterMs: 9_000, reason: "429 TooManyRequests" },
    ],
    [
      "TooManyProviderTokenUpdates",
      {},
      { kind: "retry", isThrottled: true, afterMs: 60_000, reason: "429 TooManyProviderTokenUpdates" },
    ],
    ["InternalServerError", {}, { kind: "retry", afterMs: 10_000, reason: "500 InternalServerError" }],
    ["ServiceUnavailable", {}, { kind: "retry", afterMs: 10_000, reason: "503 ServiceUnavailable" }],
    ["Shutdown", { retryAfter: 5 }, { kind: "retry", afterMs: 5_000, reason: "503 Shutdown" }],
  ])("%s %o", async (answer, more, outcome) => {
    const playing = fake.play({ answer, ...more });
    expect(await sendOne(apns, token)).toEqual(outcome);
    playing.stop();
    expect(await sendOne(apns, token), "afterwards it works").toEqual({ kind: "sent" });
  });

  test.each<ApnsReason>([
    "InvalidProviderToken",
    "MissingProviderToken",
    "BadCertificateEnvironment",
    "ExpiredProviderToken",
    "Forbidden",
  ])("403 %s, once: the message is sent all the same", async (answer) => {
    fake.play({ answer, times: 1 });
    expect(await sendOne(apns, token)).toEqual({ kind: "sent" });
  });

  test("403 for all that is in flight: one message is sent once more for all of them", async () => {
    const refusing = fake.play({ answer: "InvalidProviderToken" });
    await sendOne(apns, token);
    const before = refusing.played;
    const send = apns.prepare(content());
    const outcomes = await Promise.all(Array.from({ length: 50 }, (_, n) => send(recipient(tokenOf(n)))));
    expect(kindsOf(outcomes)).toEqual({ refused: 50 });
    expect(refusing.played - before).toBeLessThan(60);
  });

  test("403 of one connection stops nothing that goes over another one", async () => {
    let refusing: Http2Session | undefined;
    const server = createServer().on("stream", (stream) => {
      refusing ??= stream.session;
      stream.resume().on("end", () => {
        const isRefused = stream.session === refusing;
        stream.respond({ ":status": isRefused ? 403 : 200 });
        stream.end(isRefused ? '{"reason":"InvalidProviderToken"}' : "");
      });
    });
    await once(server.listen(0, "127.0.0.1"), "listening");
    const { port } = server.address() as AddressInfo;
    const sender = apnsOf({ ...fake, origin: `http://127.0.0.1:${port}` });
    const send = sender.prepare(content());
    const outcomes = await Promise.all(Array.from({ length: 50 }, (_, n) => send(recipient(tokenOf(n)))));
    expect(kindsOf(outcomes)).toEqual({ sent: 50 });
    await sender.close();
    server.close();
  });

  test("any 2xx is sent", async () => {
    fake.play({ answer: { status: 202 } });
    expect(await sendOne(apns, token)).toEqual({ kind: "sent" });
  });

  test("410 that nobody can read kills no token", async () => {
    fake.play({ answer: { status: 410, body: "<html>" } });
    expect(await sendOne(apns, token)).toEqual({ kind: "failed", reason: "410" });
  });

  test("a reset", async () => {
    fake.play({ fault: "reset-after-accept", times: 1 });
    const to = recipient(token);
    const send = apns.prepare(content());
    expect(await send(to)).toMatchObject({ kind: "retry" });
    expect(await send(to)).toEqual({ kind: "sent" });
    expect(fake.ledger.token(token)?.messages).toMatchObject([{ messageId: to.messageId, count: 2 }]);
  });
});

describe("connections", () => {
  const sendMany = (count: number): Promise<Outcome[]> => {
    const send = apns.prepare(content());
    return Promise.all(Array.from({ length: count }, (_, index) => send(recipient(tokenOf(index)))));
  };

  test("a new one has one stream until the first push, and then many", async () => {
    const fresh = apnsOf(fake);
    const send = fresh.prepare(content());
    const all = Array.from({ length: 500 }, (_, index) => send(recipient(tokenOf(index))));
    expect(kindsOf(await Promise.all(all))).toEqual({ sent: 500 });
    await fresh.close();
  });

  test("GOAWAY: nothing is lost or sent twice", async () => {
    fake.play({ fault: "goaway", times: 2, reason: "Shutdown" });
    expect(kindsOf(await sendMany(300))).toEqual({ sent: 300 });
    expect(fake.ledger.summary()).toMatchObject({ tokens: 300, repeats: 0 });
  });
});

describe("the provider token", () => {
  const halfHour = 1_800_000;
  const begin = Math.ceil(Date.now() / halfHour) * halfHour;
  const claimsOf = (jwt: string): unknown =>
    JSON.parse(Buffer.from(jwt.split(".")[1] ?? "", "base64url").toString());
  const settings = () => ({ ...fake.credentials, endpoint: fake.origin, key: fake.credentials.privateKey });
  /** A machine whose clock shows that, and moves. */
  const machine = (now: number) => {
    const clock = { time: now, now: () => clock.time };
    return { clock, token: new ApnsToken(settings(), clock) };
  };
  const issuedAt = async (token: ApnsToken): Promise<unknown> => claimsOf(await token.jwt());

  test("is the same on all machines of a fleet, and never of the future", async () => {
    const iat = begin / 1000;
    for (const seconds of [60, 600, 1859]) {
      const { token: one } = machine(begin + seconds * 1000);
      expect(await issuedAt(one)).toEqual({ iss: fake.credentials.teamId, iat });
    }
    expect(await issuedAt(machine(begin + 59_000).token)).toMatchObject({ iat: iat - 1800 });
  });

  test("is made once in half an hour", async () => {
    const { clock, token: one } = machine(begin + 61_000);
    const jwt = await one.jwt();
    clock.time += 1_790_000;
    expect(await one.jwt()).toBe(jwt);
    clock.time += 10_000;
    expect(await issuedAt(one)).toMatchObject({ iat: begin / 1000 + 1800 });
  });

  test("that has expired is renewed once, and the next follows no sooner than Apple allows", async () => {
    const { clock, token: one } = machine(begin + 1_700_000);
    const jwt = await one.jwt();
    const renewals = await Promise.all([one.renew(jwt), one.renew(jwt)]);
    expect(renewals[0]).toBe(renewals[1]);
    const renewed = renewals[0] ?? "";
    expect(claimsOf(renewed)).toMatchObject({ iat: begin / 1000 + 1700 });
    expect(await one.renew(renewed)).toBe(renewed);
    clock.time += 1_200_000;
    expect(await one.jwt()).toBe(renewed);
    clock.time = begin + 3_661_000;
    expect(await issuedAt(one)).toMatchObject({ iat: begin / 1000 + 3600 });
  });

  test("of the last 20 minutes is not renewed, as Apple would punish that", async () => {
    const { clock, token: one } = machine(begin + 61_000);
    const jwt = await one.jwt();
    clock.time = begin + 1_199_000;
    expect(await one.renew(jwt)).toBe(jwt);
    clock.time = begin + 1_200_000;
    expect(claimsOf(await one.renew(jwt))).toMatchObject({ iat: begin / 1000 + 1200 });
  });

  test("that APNs takes for expired: the message goes once more, with a new one if it may have one", async () => {
    const late = apnsOf(fake);
    fake.play({ answer: "ExpiredProviderToken", times: 1 });
    expect(await sendOne(late, token)).toEqual({ kind: "sent" });
    await late.close();
  });

  test("that is expired twice is refused", async () => {
    const late = apnsOf(fake);
    fake.play({ answer: "ExpiredProviderToken" });
    const refused = { kind: "refused", isConfirmed: true, isOfTime: true };
    expect(await sendOne(late, token)).toEqual({ ...refused, reason: "403 ExpiredProviderToken" });
    await late.close();
  });
});
