import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Scenario } from "../../../../src/development/provider-fakes/scenario.ts";
import {
  startWebPushFake,
  type WebPushFake,
} from "../../../../src/development/provider-fakes/webpush/webpush.ts";
import type { WebPushRow } from "../../../../src/development/provider-fakes/webpush/webpush-responses.ts";
import type { Outcome } from "../../../../src/push/providers/provider.ts";
import type { WebPushProvider } from "../../../../src/push/providers/webpush/webpush.ts";
import { movableClock } from "../../../support/movable-clock.ts";
import { suiteCleanup } from "../../../support/suite-cleanup.ts";
import { content, kindsOf, recipient, sendOne, webPushOf } from "../providers-fixture.ts";

let fake: WebPushFake;
let webPush: WebPushProvider;

const cleanup = suiteCleanup();
beforeAll(async () => {
  fake = await startWebPushFake();
  cleanup.defer(() => fake.close());
  webPush = webPushOf(fake);
  cleanup.defer(() => webPush.close());
});
afterEach(() => fake.clear());

const subscribe = (name?: string): string => JSON.stringify(fake.subscribe(name));

describe("a message", () => {
  test("is decrypted by the browser to what was sent", async () => {
    const what = content();
    const to = recipient(subscribe());
    expect(webPush.tokenProblem(to.token)).toBeUndefined();
    expect(await webPush.prepare(what)(to)).toEqual({ kind: "sent" });
    const [accepted] = fake.ledger.recent();
    expect(accepted).toMatchObject({ messageId: to.messageId, collapseId: what.notificationId });
    expect(JSON.parse(String(accepted?.payload))).toEqual({
      messageId: to.messageId,
      notificationId: what.notificationId,
      tag: what.notificationId,
      title: what.title,
      body: what.message,
      image: what.imageUrl,
    });
  });

  test("has as much of the text as there is room for", async () => {
    const to = recipient(subscribe());
    const send = webPush.prepare(content({ message: "ß".repeat(2000) }));
    expect(await send(to)).toEqual({ kind: "sent" });
    const payload = Buffer.byteLength(String(fake.ledger.recent()[0]?.payload));
    expect(payload).toBeGreaterThan(3980);
    expect(payload).toBeLessThanOrEqual(3993);
  });

  test("is sent once more in 2,800 bytes to a browser that takes less", async () => {
    const send = webPush.prepare(content({ message: "ß".repeat(2000) }));
    expect(await send(recipient(subscribe("small-1")))).toEqual({ kind: "sent" });
    const payload = Buffer.byteLength(String(fake.ledger.recent()[0]?.payload));
    expect(payload).toBeGreaterThan(2790);
    expect(payload).toBeLessThanOrEqual(2800);
    expect(fake.ledger.summary().answers).toEqual({ PayloadTooLarge: 1, OK: 1 });
  });

  test.each<[string, Scenario<WebPushRow>, Outcome, number]>([
    ["without a body", { answer: { status: 413 }, times: 1 }, { kind: "sent" }, 2],
    ["cut short", { answer: "PayloadTooLarge", cut: true, times: 1 }, { kind: "sent" }, 2],
    ["again", { answer: "PayloadTooLarge" }, { kind: "failed", reason: "413" }, 2],
  ])("is sent twice at most: 413 %s", async (_, scenario, expected, requests) => {
    fake.play(scenario);
    const send = webPush.prepare(content({ message: "ß".repeat(2000) }));
    expect(await send(recipient(subscribe()))).toEqual(expected);
    const counts = Object.values(fake.ledger.summary().answers);
    expect(counts.reduce((all, one) => all + one, 0)).toBe(requests);
  });

  test("goes to a hundred browsers at once", async () => {
    const send = webPush.prepare(content());
    const outcomes = await Promise.all(Array.from({ length: 100 }, () => send(recipient(subscribe()))));
    expect(kindsOf(outcomes)).toEqual({ sent: 100 });
    expect(fake.ledger.summary().tokens).toBe(100);
  });
});

const foreign = (reason: string): Outcome => ({ kind: "foreign", reason });

describe("an answer of a push service", () => {
  test.each<[string, Scenario<WebPushRow>, Outcome]>([
    ["400", { answer: "BadRequest" }, { kind: "failed", reason: "400" }],
    ["400 of another key", { answer: "VapidPkHashMismatch" }, foreign("400 VapidPkHashMismatch")],
    ["400 of another key", { answer: "UnauthorizedRegistration" }, foreign("400 UnauthorizedRegistration")],
    ["401 of another key", { answer: "VapidKeyMismatch" }, foreign("401")],
    [
      "401 with a text",
      { answer: { status: 401, body: "authorization header had invalid format" } },
      foreign("401"),
    ],
    ["401 without a body", { answer: { status: 401 } }, foreign("401")],
    ["204, as any 2xx", { answer: { status: 204 } }, { kind: "sent" }],
    ["403", { answer: "Forbidden" }, foreign("403")],
    ["404", { answer: "NotFound" }, { kind: "dead", reason: "404" }],
    ["410", { answer: "Gone" }, { kind: "dead", reason: "410" }],
    [
      "404, cut",
      { answer: "NotFound", cut: true },
      { kind: "retry", afterMs: 10_000, reason: "404, cut short" },
    ],
    ["410, cut", { answer: "Gone", cut: true }, { kind: "retry", afterMs: 10_000, reason: "410, cut short" }],
    [
      "503",
      { answer: "ServiceUnavailable", retryAfter: 30 },
      { kind: "retry", afterMs: 30_000, reason: "503" },
    ],
    ["413", { answer: "PayloadTooLarge" }, { kind: "failed", reason: "413" }],
    [
      "429",
      { answer: "TooManyRequests" },
      { kind: "retry", isThrottled: true, afterMs: 60_000, reason: "429" },
    ],
    [
      "429 with a time",
      { answer: "TooManyRequests", retryAfter: 5 },
      { kind: "retry", isThrottled: true, afterMs: 5_000, reason: "429" },
    ],
    [
      "406",
      { answer: { status: 406 } },
      { kind: "retry", isThrottled: true, afterMs: 60_000, reason: "406" },
    ],
    ["500", { answer: "InternalServerError" }, { kind: "retry", afterMs: 10_000, reason: "500" }],
    ["502 in HTML", { answer: "BadGateway" }, { kind: "retry", afterMs: 10_000, reason: "502" }],
    [
      "a redirection",
      { answer: { status: 307, headers: { location: "http://127.0.0.1/" } } },
      { kind: "failed", reason: "307" },
    ],
    ["a reset", { fault: "reset" }, { kind: "retry", afterMs: 10_000, reason: "RST_STREAM 2" }],
  ])("%s", async (_, scenario, outcome) => {
    const playing = fake.play(scenario);
    expect(await sendOne(webPush, subscribe())).toEqual(outcome);
    playing.stop();
    expect(await sendOne(webPush, subscribe()), "afterwards it works").toEqual({ kind: "sent" });
  });

  test("a subscription that has ended is dead", async () => {
    const subscription = fake.subscribe();
    fake.unsubscribe(subscription);
    const outcome = await sendOne(webPush, JSON.stringify(subscription));
    expect(outcome).toEqual({ kind: "dead", reason: "410" });
  });

  test("a subscription for another key kills no token", async () => {
    const other = await startWebPushFake();
    const stranger = webPushOf({ ...fake, credentials: other.credentials });
    expect(await sendOne(stranger, subscribe())).toEqual({ kind: "foreign", reason: "403" });
    await stranger.close();
    await other.close();
  });
});

test("the VAPID JWT outlives hours, and not its day", async () => {
  const clock = movableClock();
  const movedFake = await startWebPushFake({ clock });
  const sender = webPushOf(movedFake, clock);
  const token = JSON.stringify(movedFake.subscribe());
  for (let hour = 0; hour < 30; hour += 5) {
    expect(await sendOne(sender, token)).toEqual({ kind: "sent" });
    clock.move(5 * 3600);
  }
  await sender.close();
  await movedFake.close();
});

describe("a push service that speaks only HTTP/1.1", () => {
  const http1 = createServer();
  let answer: (request: IncomingMessage, response: ServerResponse) => void = () => {};
  http1.on("request", (request, response) => answer(request, response));
  let subscription: string;
  let sender: WebPushProvider;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    await new Promise<void>((resolve) => http1.listen(0, "127.0.0.1", resolve));
    cleanup.defer(() => http1[Symbol.asyncDispose]());
    const origin = `http://127.0.0.1:${(http1.address() as AddressInfo).port}`;
    subscription = JSON.stringify({ ...fake.subscribe(), endpoint: `${origin}/push/a?b=c` });
    sender = webPushOf({ ...fake, origin });
    cleanup.defer(() => sender.close());
  });

  test("is sent to in its own way", async () => {
    const requests: IncomingMessage[] = [];
    answer = (request, response) => {
      requests.push(request);
      request.resume().on("end", () => response.writeHead(201).end());
    };
    const send = sender.prepare(content());
    const outcomes = await Promise.all(Array.from({ length: 60 }, () => send(recipient(subscription))));
    expect(kindsOf(outcomes)).toEqual({ sent: 60 });
    expect(requests[0]).toMatchObject({ method: "POST", url: "/push/a?b=c" });
    expect(requests[0]?.headers).toMatchObject({
      ttl: "3600",
      urgency: "high",
      "content-encoding": "aes128gcm",
      authorization: expect.stringMatching(/^vapid t=.*, k=/),
    });
    expect(new Set(requests.map(({ socket }) => socket)).size).toBeLessThanOrEqual(50);
  });

  test.each<[string, (response: ServerResponse) => void, Outcome]>([
    ["410", (response) => response.writeHead(410).end(), { kind: "dead", reason: "410" }],
    [
      "410 that breaks off",
      (response) => {
        response.writeHead(410, { "content-length": "100" }).write("half");
        setTimeout(() => response.destroy(), 20);
      },
      { kind: "retry", afterMs: 10_000, reason: "410, cut short" },
    ],
    [
      "429",
      (response) => response.writeHead(429, { "retry-after": "7" }).end("x".repeat(200_000)),
      { kind: "retry", isThrottled: true, afterMs: 7_000, reason: "429" },
    ],
    [
      "201 that breaks off",
      (response) => {
        response.writeHead(201, { "content-length": "100" }).write("half");
        setTimeout(() => response.destroy(), 20);
      },
      { kind: "sent" },
    ],
    [
      "a reset",
      (response) => response.destroy(),
      { kind: "retry", hasNoResponse: true, afterMs: 10_000, reason: "ECONNRESET" },
    ],
  ])("answers %s", async (_, respond, outcome) => {
    answer = (request, response) => void request.resume().on("end", () => respond(response));
    expect(await sendOne(sender, subscription)).toEqual(outcome);
  });
});
