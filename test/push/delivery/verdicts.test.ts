/** What the answers of the providers' fakes lead to, over real sockets: nobody's token decides over others. */
import { createHash, randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { startApnsFake } from "../../../src/development/provider-fakes/apns/apns.ts";
import { startFcmFake } from "../../../src/development/provider-fakes/fcm/fcm.ts";
import { startWebPushFake } from "../../../src/development/provider-fakes/webpush/webpush.ts";
import { systemClock } from "../../../src/platform/base/clock.ts";
import { createProviderControl } from "../../../src/push/delivery/provider-control.ts";
import { createDeadLetters } from "../../../src/push/notifications/dead-letters.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { apnsOf, fcmOf, webPushOf } from "../providers/providers-fixture.ts";
import { createDeliveryTest, type DeliveryTest, eventually, rateRow } from "./delivery-fixture.ts";

const rules = { refusedPauseMs: 3_000_000, firstPauseMs: 3_000_000, longestPauseMs: 3_000_000 };
const appleToken = (n: number) => createHash("sha256").update(`${n}`).digest("hex");
const nobodyFails = { failed: 0, retries: 0 };

// What is decided is the same on both databases.
describe.each(backends.slice(0, 1))("on %s", (backend) => {
  let test: DeliveryTest;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    test = await createDeliveryTest(backend);
    cleanup.defer(() => test.close());
  });
  /** What a test has opened, to be closed when its workers have stopped. */
  const open: { close(): Promise<void> }[] = [];
  function opened<T extends { close(): Promise<void> }>(one: T): T {
    open.push(one);
    return one;
  }
  afterEach(async () => {
    await test.stopWorkers();
    for (const one of open.splice(0).reverse()) await one.close();
    await test.clearState();
    await test.db.execute(sql`delete from push.devices`);
  });

  const control = () =>
    createProviderControl({ db: test.db, wakeUps: test.wakeUps, providers: ["fcm", "apns", "webpush"] });
  const stateOf = async (name: string) => (await control().list()).find(({ provider }) => provider === name);

  it("FCM: iOS tokens of a project without an APNs key are a dead letter, with an alarm, and are sent to once it has one", async () => {
    const fake = opened(await startFcmFake());
    const fcm = opened(fcmOf(fake));
    const planned = await test.plan({
      ...{ devices: 500, chunkSize: 250 },
      token: (n) => `${n % 50 === 0 ? "ios" : "android"}-${n}-${randomUUID()}`,
    });
    const lacking = fake.play({ tokenPrefix: "ios-", answer: "THIRD_PARTY_AUTH_ERROR" });
    test.startWorker({ providers: [fcm], rules });
    const reason = "401 THIRD_PARTY_AUTH_ERROR";
    const blocked = { sent: 245, failed: 0, rest: 5, reason };
    expect(await test.until(planned, ["DEAD"])).toMatchObject([blocked, blocked]);
    expect(await stateOf("fcm")).toMatchObject({ state: "OPEN" });
    await eventually(() => test.log.lines().filter((line) => line["reason"] === reason).length === 2);
    const counted = 'gatepost_push_dead_chunks_total{provider="fcm"} 2';
    await eventually(async () => (await test.metrics.registry.metrics()).includes(counted));
    // Each is logged once, however many chunks have such tokens.
    expect(test.log.lines().filter((line) => line["reason"] === reason)).toMatchObject([
      { level: "error", notificationId: planned.notificationId },
      { level: "error", devices: 5 },
    ]);
    expect(await test.metrics.registry.metrics()).toContain(
      'gatepost_push_message_alarms_total{provider="fcm"} 10',
    );
    lacking.stop();
    const deadLetters = createDeadLetters({ db: test.db, wakeUps: test.wakeUps, clock: systemClock });
    for (const id of planned.chunkIds) await deadLetters.replay(String(id));
    const all = { sent: 250, failed: 0 };
    expect(await test.until(planned, ["DONE"])).toMatchObject([all, all]);
  });

  it("FCM: a throttled device is tried again by itself, is a dead letter in the end, and stops nobody", async () => {
    const fake = opened(await startFcmFake());
    const fcm = opened(fcmOf(fake));
    fake.play({ tokenPrefix: "hot-", answer: "DEVICE_QUOTA_EXCEEDED", retryAfter: 0 });
    // The only message that there is: nothing else shows that FCM works.
    const hot = await test.plan({ devices: 1, token: () => "hot-1" });
    test.startWorker({ providers: [fcm], rules: { ...rules, firstRetryMs: 10, maxRetries: 2 } });
    expect(await test.until(hot, ["DEAD"])).toMatchObject([{ reason: "429 QUOTA_EXCEEDED" }]);
    const planned = await test.plan({ devices: 200, token: (n) => `${n === 0 ? "hot" : "ok"}-${n}-again` });
    const chunks = await test.until(planned, ["DEAD"]);
    expect(chunks).toMatchObject([{ sent: 199, failed: 0, rest: 1, reason: "429 QUOTA_EXCEEDED" }]);
    expect(await stateOf("fcm")).toMatchObject({ state: "OPEN" });
  });

  it("FCM: a throttled device that is sent to first after an outage stops nobody, and waits as long as it is told", async () => {
    const fake = opened(await startFcmFake());
    const fcm = opened(fcmOf(fake));
    await test.pauseProvider({ cause: "unavailable", seconds: 0 });
    fake.play({ tokenPrefix: "hot-", answer: "DEVICE_QUOTA_EXCEEDED", retryAfter: 7_200 });
    const hot = await test.plan({ devices: 1, token: () => "hot-1" });
    test.startWorker({ providers: [fcm], rules });
    await eventually(async () => (await test.chunks(hot))[0]?.retries === 1);
    const planned = await test.plan({ devices: 60 });
    expect(await test.until(planned, ["DONE"])).toMatchObject([{ sent: 60, ...nobodyFails }]);
    expect(await stateOf("fcm")).toMatchObject({ state: "OPEN" });
  });

  it("FCM: a project whose quota every second message meets is sent to more slowly, without a pause", async () => {
    const fake = opened(await startFcmFake());
    const fcm = opened(fcmOf(fake));
    fake.play({ tokenPrefix: "hot-", answer: "QUOTA_EXCEEDED", retryAfter: 60 });
    await test.db.execute(sql`
      insert into push.provider_states (provider, next_at, share, failures) values ('fcm', now(), 1, 0)`);
    const token = (n: number) => `${n % 2 === 0 ? "hot" : "ok"}-${n}-${randomUUID()}`;
    const planned = await test.plan({ devices: 200, token });
    test.startWorker({ providers: [fcm], rules });
    await eventually(async () => (await test.chunks(planned))[0]?.retries === 1);
    expect(await test.chunks(planned)).toMatchObject([{ sent: 100, rest: 100 }]);
    await eventually(async () => (await rateRow(test))?.share === 0.5);
    expect(await stateOf("fcm")).toMatchObject({ state: "OPEN" });
  });

  it("FCM: a quota that is used up for several users pauses it, and nothing is given up", async () => {
    const fake = opened(await startFcmFake());
    const fcm = opened(fcmOf(fake));
    const quota = fake.play({ answer: "QUOTA_EXCEEDED", retryAfter: 60 });
    const planned = await test.plan({ devices: 60 });
    test.startWorker({ providers: [fcm], rules: { ...rules, maxRetries: 0 } });
    await eventually(async () => (await stateOf("fcm"))?.state === "UNAVAILABLE");
    expect(await test.until(planned, ["READY", "WAITING"])).toMatchObject([{ rest: 60, ...nobodyFails }]);
    quota.stop();
    await control().resume("fcm", undefined);
    expect(await test.until(planned, ["DONE"])).toMatchObject([{ sent: 60, ...nobodyFails }]);
  });

  it("FCM: one user's tokens of another project, answered first, stop nobody", async () => {
    const fake = opened(await startFcmFake());
    const fcm = opened(fcmOf(fake));
    const hostile = await test.plan({ devices: 12, users: 1, token: (n) => `mismatch-${n}-${randomUUID()}` });
    test.startWorker({ providers: [fcm], rules });
    expect(await test.until(hostile, ["DONE"])).toMatchObject([{ failed: 12 }]);
    const good = await test.plan({ devices: 200 });
    expect(await test.until(good, ["DONE"])).toMatchObject([{ sent: 200, failed: 0 }]);
  });

  it("FCM: rights that are taken away are found by the self-test, and no message is lost", async () => {
    const fake = opened(await startFcmFake());
    const fcm = opened(fcmOf(fake));
    const playing = fake.play({ answer: "PERMISSION_DENIED" });
    const planned = await test.plan({ devices: 60 });
    test.startWorker({ providers: [fcm], rules });
    await eventually(async () => (await stateOf("fcm"))?.state === "REFUSED");
    // All refusals have been checked by then.
    await test.until(planned, ["READY", "WAITING"]);
    playing.stop();
    await control().resume("fcm", undefined);
    expect(await test.until(planned, ["DONE"])).toMatchObject([{ sent: 60, ...nobodyFails }]);
  });

  it("APNs: one stray refusal stops nobody, and its message is sent", async () => {
    const fake = opened(await startApnsFake());
    const apns = opened(apnsOf(fake));
    fake.play({ answer: "InvalidProviderToken", times: 1 });
    const planned = await test.plan({ devices: 200, provider: "apns", token: appleToken });
    test.startWorker({ providers: [apns], rules });
    expect(await test.until(planned, ["DONE"])).toMatchObject([{ sent: 200, ...nobodyFails }]);
    expect(await stateOf("apns")).toMatchObject({ state: "OPEN" });
  });

  it("APNs: a refused key pauses it with an alarm, and what waited goes out once it is right", async () => {
    const fake = opened(await startApnsFake());
    const apns = opened(apnsOf(fake));
    const playing = fake.play({ answer: "InvalidProviderToken" });
    const planned = await test.plan({ devices: 1, provider: "apns", token: appleToken });
    test.startWorker({ providers: [apns], rules });
    await eventually(async () => (await stateOf("apns"))?.state === "REFUSED");
    playing.stop();
    await control().resume("apns", undefined);
    expect(await test.until(planned, ["DONE"])).toMatchObject([{ sent: 1, ...nobodyFails }]);
  });

  it("APNs: a topic that is refused to two users stops nobody, and is a dead letter in the end", async () => {
    const fake = opened(await startApnsFake());
    const apns = opened(apnsOf(fake));
    const planned = await test.plan({ devices: 2, provider: "apns", token: appleToken });
    for (const [n, tokenPrefix] of planned.tokens.entries())
      fake.play({ tokenPrefix, answer: n === 0 ? "TopicDisallowed" : "BadTopic" });
    test.startWorker({ providers: [apns], rules: { ...rules, firstRetryMs: 10, maxRetries: 2 } });
    expect(await test.until(planned, ["DEAD"])).toMatchObject([{ rest: 2, failed: 0 }]);
    const good = await test.plan({ devices: 60, provider: "apns", token: (n) => appleToken(n + 2) });
    expect(await test.until(good, ["DONE"])).toMatchObject([{ sent: 60, ...nobodyFails }]);
    expect(await stateOf("apns")).toMatchObject({ state: "OPEN" });
  });

  it("APNs: a wrong topic is a refusal, and what waited goes out once it is right", async () => {
    const fake = opened(await startApnsFake());
    const apns = opened(apnsOf(fake));
    const playing = fake.play({ answer: "TopicDisallowed" });
    const planned = await test.plan({ devices: 120, chunkSize: 60, provider: "apns", token: appleToken });
    test.startWorker({ providers: [apns], rules });
    await eventually(async () => (await stateOf("apns"))?.state === "REFUSED");
    expect(await stateOf("apns")).toMatchObject({ reason: "400 TopicDisallowed" });
    playing.stop();
    await control().resume("apns", undefined);
    const chunks = await test.until(planned, ["DONE"]);
    expect(chunks).toMatchObject([
      { sent: 60, ...nobodyFails },
      { sent: 60, ...nobodyFails },
    ]);
  });

  it.each([
    ["google", "403"],
    ["mozilla", "401"],
    ["apple", "400 VapidPkHashMismatch"],
  ] as const)(
    "Web Push: a changed VAPID key is a refusal of one push service, as %s says it, and nothing fails for it",
    async (vendor, reason) => {
      const fake = opened(await startWebPushFake({ vendor }));
      const stranger = opened(await startWebPushFake());
      const wrong = opened(webPushOf({ ...fake, credentials: stranger.credentials }));
      const right = opened(webPushOf(fake));
      const planned = await test.plan({
        ...{ devices: 80, provider: "webpush" },
        token: () => JSON.stringify(fake.subscribe()),
      });
      const worker = test.startWorker({ providers: [wrong], rules });
      await eventually(async () => (await stateOf("webpush"))?.origins[0]?.state === "REFUSED");
      expect((await stateOf("webpush"))?.origins).toMatchObject([{ origin: fake.origin, reason }]);
      expect(await test.until(planned, ["READY", "WAITING"])).toMatchObject([{ sent: 0, ...nobodyFails }]);
      expect(test.log.lines().filter((line) => line["reason"] === reason)).toMatchObject([
        { level: "error" },
      ]);
      await worker.stop();
      test.startWorker({ providers: [right], rules });
      await control().resume("webpush", fake.origin);
      expect(await test.until(planned, ["DONE"])).toMatchObject([{ sent: 80, ...nobodyFails }]);
    },
  );

  it("Web Push: one push service that is away pauses itself alone", async () => {
    const fake = opened(await startWebPushFake());
    const other = opened(await startWebPushFake({ credentials: fake.credentials }));
    const both = opened(webPushOf(fake, systemClock, [fake.origin, other.origin]));
    const down = fake.play({ answer: "ServiceUnavailable", retryAfter: 3_000 });
    const planned = await test.plan({
      ...{ devices: 100, provider: "webpush" },
      token: (n) => JSON.stringify((n % 2 === 0 ? fake : other).subscribe()),
    });
    test.startWorker({ providers: [both], rules });
    await eventually(async () => (await stateOf("webpush"))?.origins.length === 1);
    expect(await test.until(planned, ["READY", "WAITING"])).toMatchObject([
      { sent: 50, rest: 50, ...nobodyFails },
    ]);
    down.stop();
    await control().resume("webpush", undefined);
    const chunks = await test.until(planned, ["DONE"]);
    expect(chunks.reduce((sum, { sent }) => sum + sent, 0)).toBe(100);
  });
});
