/** What delivery does when providers fail: retries, the breaker, what is given up, and what is never lost. */
import { sql } from "drizzle-orm";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { systemClock } from "../../../src/platform/base/clock.ts";
import { createDeadLetters } from "../../../src/push/notifications/dead-letters.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";
import {
  createDeliveryTest,
  type DeliveryTest,
  eventually,
  type RecordingProvider,
  rateRow,
  recordingProvider,
} from "./delivery-fixture.ts";

describe.each(backends)("delivery to failing providers on %s", (backend) => {
  let test: DeliveryTest;
  let provider: RecordingProvider;

  const cleanup = suiteCleanup();
  beforeAll(async () => {
    test = await createDeliveryTest(backend);
    cleanup.defer(() => test.close());
  });
  beforeEach(() => {
    provider = recordingProvider();
  });
  afterEach(async () => {
    await test.stopWorkers();
    await test.clearState();
  });

  it("tries again what the provider could not take, later each time, and nothing else", async () => {
    const planned = await test.plan({ devices: 10 });
    const [unlucky] = planned.tokens;
    let times = 0;
    provider.answer = ({ token }) =>
      token === unlucky && ++times <= 3 ? { kind: "retry", reason: "500" } : { kind: "sent" };
    test.startWorker({ providers: [provider] });
    const [chunk] = await test.until(planned, ["DONE"]);
    expect(chunk).toMatchObject({ sent: 10, failed: 0, retries: 3 });
    const tries = provider.sent.filter(({ token }) => token === unlucky).map(({ at }) => at);
    const gaps = tries.slice(1).map((at, index) => at - (tries[index] ?? 0));
    expect(gaps[0]).toBeGreaterThan(95);
    expect(gaps[1]).toBeGreaterThan(195);
    expect(gaps[2]).toBeGreaterThan(395);
    expect(provider.sent).toHaveLength(13);
    expect(
      new Set(provider.sent.filter(({ token }) => token === unlucky).map(({ messageId }) => messageId)).size,
    ).toBe(1);
  });

  it("tries later each time what a silent provider does not answer, of however few users, and at once when it answers", async () => {
    const silent = await test.plan({ devices: 3, users: 2 });
    provider.answer = ({ token }) =>
      silent.tokens.includes(token)
        ? { kind: "retry", hasNoResponse: true, reason: "no response within 10 s" }
        : { kind: "sent" };
    test.startWorker({ providers: [provider], rules: { firstRetryMs: 100, longestRetryMs: 60_000 } });
    const tries = () => provider.sent.filter(({ token }) => token === silent.tokens[0]).map(({ at }) => at);
    await eventually(() => tries().length === 5);
    const [first = 0, , , , last = 0] = tries();
    // Waits of 100 ms each would be over after 400 ms, and 200 ms for the polls.
    expect(last - first).toBeGreaterThan(1_000);
    expect(await test.until(silent, ["READY", "WAITING"])).toMatchObject([{ retries: 0, rest: 3 }]);
    await test.db.execute(sql`
      update push.delivery_chunks set due_at = now() + interval '10 minutes' where state = 'WAITING'`);
    await test.until(await test.plan({ devices: 1 }), ["DONE"]);
    await eventually(() => tries().length > 5);
    await test.setState(silent, "CANCELLED");
  });

  it("waits with a retry as long as the provider asks", async () => {
    const planned = await test.plan({ devices: 1 });
    provider.answer = (_, nth) =>
      nth === 1 ? { kind: "retry", afterMs: 1_200, reason: "429" } : { kind: "sent" };
    test.startWorker({ providers: [provider] });
    await test.until(planned, ["DONE"]);
    const [first, second] = provider.sent;
    expect((second?.at ?? 0) - (first?.at ?? 0)).toBeGreaterThan(1_190);
  });

  it("says where the provider wants messages to wait for hours, and lets them wait for so long", async () => {
    const planned = await test.plan({ devices: 2 });
    provider.answer = ({ token }) =>
      token === planned.tokens[0]
        ? { kind: "retry", isThrottled: true, afterMs: 7_200_000, reason: "429" }
        : { kind: "sent" };
    test.startWorker({ providers: [provider] });
    await test.until(planned, ["READY", "WAITING"]);
    await eventually(() => test.log.lines().some((line) => line["waitSeconds"] === 7_200));
    const [chunk] = await rows<{ seconds: number }>(
      test.db,
      sql`
        select extract(epoch from due_at - now())::float8 as seconds from push.delivery_chunks where state = 'WAITING'`,
    );
    expect(chunk?.seconds).toBeGreaterThan(7_100);
    await test.setState(planned, "CANCELLED");
  });

  it("gives a poisoned chunk up after its retries, lets the others go on, and sends it when it is replayed", async () => {
    const poisoned = await test.plan({ devices: 5 });
    const good = await test.plan({ devices: 50, chunkSize: 10 });
    provider.answer = ({ token }) =>
      poisoned.tokens.slice(0, 3).includes(token)
        ? { kind: "retry", reason: "500 INTERNAL" }
        : { kind: "sent" };
    test.startWorker({ providers: [provider], rules: { firstRetryMs: 20, maxRetries: 3 } });
    await test.until(good, ["DONE"]);
    const [dead] = await test.until(poisoned, ["DEAD"]);
    expect(dead).toMatchObject({ sent: 2, rest: 3, reason: "500 INTERNAL" });
    expect(test.completed).toContain(poisoned.notificationId);
    expect(await test.openChunks()).toBe(0);
    expect(test.log.lines().find(({ chunkId }) => chunkId === poisoned.chunkIds[0])).toMatchObject({
      level: "error",
      devices: 3,
      reason: "500 INTERNAL",
    });
    provider.answer = () => ({ kind: "sent" });
    const deadLetters = createDeadLetters({ db: test.db, wakeUps: test.wakeUps, clock: systemClock });
    await deadLetters.replay(String(poisoned.chunkIds[0]));
    expect((await test.until(poisoned, ["DONE"]))[0]).toMatchObject({ sent: 5 });
  });

  it("gives up a chunk that has had errors for too long", async () => {
    const planned = await test.plan({ devices: 2 });
    // The other device shows that the provider works.
    provider.answer = ({ token }) =>
      token === planned.tokens[0] ? { kind: "retry", reason: "500" } : { kind: "sent" };
    test.startWorker({
      providers: [provider],
      // Its time ends long before its retries do.
      rules: { firstRetryMs: 100, longestRetryMs: 100, giveUpMs: 3_000, maxRetries: 1_000 },
    });
    const [dead] = await test.until(planned, ["DEAD"]);
    expect(dead?.retries).toBeGreaterThan(2);
    expect(dead?.retries).toBeLessThan(1_000);
  });

  it("counts a message that cannot be sent as failed, once, and keeps its device", async () => {
    const planned = await test.plan({ devices: 4 });
    provider.answer = (_, nth) =>
      nth === 1 ? { kind: "failed", reason: "400 INVALID_ARGUMENT" } : { kind: "sent" };
    test.startWorker({ providers: [provider] });
    expect((await test.until(planned, ["DONE"]))[0]).toMatchObject({ sent: 3, failed: 1 });
    const kept = await rows(
      test.db,
      sql`select 1 from push.devices where id = ${planned.deviceIds[0]}::bigint`,
    );
    expect(kept).toHaveLength(1);
    expect(test.log.lines().filter(({ reason }) => reason === "400 INVALID_ARGUMENT")).toHaveLength(1);
  });

  it("stops sending to a provider that is away, for the whole fleet, and comes back with a probe", async () => {
    const planned = await test.plan({ devices: 400, chunkSize: 100 });
    let isAway = true;
    provider.answer = () => (isAway ? { kind: "unavailable", reason: "503" } : { kind: "sent" });
    const rules = { firstPauseMs: 300, longestPauseMs: 600, probeMessages: 10 };
    test.startWorker({ providers: [provider], rules });
    test.startWorker({ providers: [provider], rules });
    const began = performance.now();
    await eventually(async () => ((await rateRow(test))?.failures ?? 0) > 2);
    const took = performance.now() - began;
    // At most a window of messages of each worker in flight at first; then probes, two at a time.
    const probes = Math.ceil(took / 300) * 2 * rules.probeMessages;
    expect(provider.sent.length).toBeLessThan(2 * provider.maxInFlight + probes);
    expect(provider.sent.length).toBeGreaterThan(10);
    expect(await rateRow(test)).toMatchObject({ reason: "503", share: expect.any(Number) });
    expect((await rateRow(test))?.share).toBeLessThan(0.5);
    const while_ = await test.chunks(planned);
    expect(while_.every(({ sent, rest }) => sent === 0 && rest === 100)).toBe(true);
    isAway = false;
    const before = provider.sent.length;
    const chunks = await test.until(planned, ["DONE"]);
    expect(chunks.every(({ sent }) => sent === 100)).toBe(true);
    expect(provider.sent.length - before).toBeLessThanOrEqual(400);
    expect(await rateRow(test)).toMatchObject({ failures: 0, paused: false, reason: null });
    expect(test.log.text()).toContain("The push provider works again");
    const text = await test.metrics.registry.metrics();
    expect(text).toContain("gatepost_push_provider_paused");
  });

  it("an outage costs a chunk none of its retries", async () => {
    const planned = await test.plan({ devices: 1 });
    provider.answer = (_, nth) => (nth <= 5 ? { kind: "unavailable", reason: "503" } : { kind: "sent" });
    const rules = { firstPauseMs: 50, longestPauseMs: 100, firstRetryMs: 50, maxRetries: 2 };
    test.startWorker({ providers: [provider], rules });
    expect((await test.until(planned, ["DONE"]))[0]).toMatchObject({ sent: 1, retries: 0 });
  });

  it("an outage dead-letters nothing, however small the chunks are and however long it lasts", async () => {
    const planned = await test.plan({ devices: 12, chunkSize: 1 });
    let isAway = true;
    provider.answer = () => (isAway ? { kind: "retry", reason: "response timeout" } : { kind: "sent" });
    // 60 minutes of failures and eight retries are long over when the provider is back.
    const rules = { firstRetryMs: 10, longestRetryMs: 20, maxRetries: 2, giveUpMs: 50 };
    test.startWorker({ providers: [provider], rules: { ...rules, firstPauseMs: 20, longestPauseMs: 40 } });
    await eventually(async () => ((await rateRow(test))?.failures ?? 0) > 5);
    isAway = false;
    const chunks = await test.until(planned, ["DONE", "DEAD"]);
    expect(chunks.every(({ state, sent, retries }) => state === "DONE" && sent === 1 && retries === 0)).toBe(
      true,
    );
  });

  it("takes a row of retries without a success for a provider that is away", async () => {
    const planned = await test.plan({ devices: 200 });
    provider = recordingProvider(5);
    provider.answer = () => ({ kind: "retry", reason: "500" });
    test.startWorker({ providers: [provider], rules: { firstPauseMs: 5_000 } });
    await eventually(async () => (await rateRow(test))?.failures === 1);
    await test.until(planned, ["READY", "WAITING"]);
    expect(provider.sent.length).toBeGreaterThanOrEqual(20);
    expect(provider.sent.length).toBeLessThanOrEqual(25);
    await test.setState(planned, "CANCELLED");
  });

  it("lets a provider that failed come back to its full rate, though an error comes now and then", async () => {
    await test.db.execute(sql`
      insert into push.provider_states (provider, next_at, share, failures) values ('fcm', now(), 0.5, 0)`);
    const planned = await test.plan({ devices: 300, chunkSize: 100 });
    // Three, four and six in a hundred.
    const unlucky = [
      planned.tokens.slice(0, 3),
      planned.tokens.slice(100, 104),
      planned.tokens.slice(200, 206),
    ];
    const hit = new Set(unlucky.flat());
    provider.answer = ({ token }) =>
      hit.delete(token) ? { kind: "retry", afterMs: 60_000, reason: "503" } : { kind: "sent" };
    test.startWorker({ providers: [provider] });
    await eventually(async () => (await test.chunks(planned)).every(({ sent }) => sent > 0));
    await test.until(planned, ["READY", "WAITING"]);
    // The last chunk's turn comes after it is written down.
    await test.stopWorkers();
    expect((await rateRow(test))?.share).toBeCloseTo(0.7);
    await test.setState(planned, "CANCELLED");
  });

  it("pauses a provider that is away for the longest time that its row of answers asked for", async () => {
    const planned = await test.plan({ devices: 25 });
    provider = recordingProvider(1);
    // The first of the row asks for the most, and the last for nothing; what came before a success does not count.
    provider.answer = (_, nth) => {
      if (nth === 2) return { kind: "sent" };
      const afterMs = { 1: 900_000, 3: 60_000 }[nth];
      return { kind: "retry", reason: "503", ...(afterMs !== undefined && { afterMs }) };
    };
    test.startWorker({ providers: [provider] });
    await eventually(async () => (await rateRow(test))?.paused === true);
    const [{ seconds } = { seconds: 0 }] = await rows<{ seconds: number }>(
      test.db,
      sql`select extract(epoch from paused_until - now())::float8 as seconds from push.provider_states`,
    );
    expect(seconds).toBeGreaterThan(50);
    expect(seconds).toBeLessThan(61);
    expect(provider.sent).toHaveLength(22);
    await test.setState(planned, "CANCELLED");
  });

  it("waits while a provider is paused, which is no retry, and tells the sending worker within a second", async () => {
    const planned = await test.plan({ devices: 300 });
    provider = recordingProvider(10);
    provider.answer = async () => {
      await new Promise((resolve) => setTimeout(resolve, 50));
      return { kind: "sent" };
    };
    test.startWorker({ providers: [provider] });
    await eventually(() => provider.sent.length > 10);
    await test.pauseProvider({ cause: "unavailable", seconds: 10 });
    const [held] = await test.until(planned, ["READY", "WAITING"]);
    const sentBefore = provider.sent.length;
    expect(sentBefore).toBeLessThan(300);
    expect(held).toMatchObject({ sent: sentBefore, retries: 0 });
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    expect(provider.sent.length).toBe(sentBefore);
    expect((await test.until(planned, ["DONE"]))[0]).toMatchObject({ sent: 300, retries: 0 });
    expect(provider.sent).toHaveLength(300);
  });

  it("survives a sender that throws: the message is tried again, the others are counted", async () => {
    const planned = await test.plan({ devices: 30 });
    provider.answer = (_, nth) => {
      if (nth === 7) throw new TypeError("a defect");
      return { kind: "sent" };
    };
    test.startWorker({ providers: [provider] });
    expect((await test.until(planned, ["DONE"]))[0]).toMatchObject({
      sent: 30,
      retries: 1,
      reason: "the sender failed: TypeError",
    });
    expect(provider.sent).toHaveLength(31);
  });

  it.runIf(backend === "PostgreSQL")(
    "writes down what was sent when the database comes back, instead of sending it again",
    async () => {
      const planned = await test.plan({ devices: 50 });
      const answers = Promise.withResolvers<void>();
      provider.answer = async () => {
        await answers.promise;
        return { kind: "sent" };
      };
      test.startWorker({ providers: [provider] });
      await eventually(() => provider.sent.length === 50);
      answers.resolve();
      for (const until = performance.now() + 1_500; performance.now() < until; ) {
        await test.database.terminate();
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      // This test's own connections were ended as well, each of its pool.
      await waitFor(async () =>
        expect(await test.chunks(planned)).toMatchObject([{ state: "DONE", sent: 50 }]),
      );
      expect(provider.sent).toHaveLength(50);
    },
  );
});
