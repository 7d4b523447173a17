/** Delivery over real sockets: who gets what, and what is written down. */
import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { type FcmFake, startFcmFake } from "../../../src/development/provider-fakes/fcm/fcm.ts";
import { messageId } from "../../../src/push/delivery/tally.ts";
import type { FcmProvider } from "../../../src/push/providers/fcm/fcm.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { stopwatch } from "../../support/stopwatch.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { atRest } from "../../support/wait-for.ts";
import { fcmOf } from "../providers/providers-fixture.ts";
import { createDeliveryTest, type DeliveryTest, eventually } from "./delivery-fixture.ts";

describe.each(backends)("delivery on %s", (backend) => {
  let test: DeliveryTest;
  let fake: FcmFake;
  let fcm: FcmProvider;

  const cleanup = suiteCleanup();
  beforeAll(async () => {
    test = await createDeliveryTest(backend);
    cleanup.defer(() => test.close());
    fake = await startFcmFake();
    cleanup.defer(() => fake.close());
    fcm = fcmOf(fake);
    cleanup.defer(() => fcm.close());
  });
  afterEach(async () => {
    await test.stopWorkers();
    await test.clearState();
    fake.clear();
  });

  const deviceCount = async () =>
    (await rows<{ count: number }>(test.db, sql`select count(*)::int as count from push.devices`))[0]?.count;

  it("sends to every planned device once, with its own message id, and to no other", async () => {
    const others = await test.plan({ devices: 5 });
    await test.pause(others);
    const planned = await test.plan({ devices: 2500 });
    const worker = test.startWorker({ providers: [fcm] });
    const chunks = await test.until(planned, ["DONE"]);
    await worker.stop();
    expect(chunks.map(({ sent, rest }) => [sent, rest])).toEqual([
      [1000, 0],
      [1000, 0],
      [500, 0],
    ]);
    expect(fake.ledger.summary()).toMatchObject({ tokens: 2500, messages: 2500, repeats: 0 });
    for (const [index, token] of planned.tokens.entries()) {
      const id = messageId(planned.notificationId, planned.deviceIds[index] ?? 0);
      expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
      const expected = { messageId: id, collapseId: planned.notificationId, count: 1 };
      if (index % 100 === 0) expect(fake.ledger.token(token)?.messages).toMatchObject([expected]);
    }
    expect(test.completed.filter((id) => id === planned.notificationId)).toHaveLength(3);
    expect(await test.openChunks()).toBe(0);
    expect((await test.until(others, ["PARKED"]))[0]).toMatchObject({ sent: 0, rest: 5 });
    expect(await test.metrics.registry.metrics()).toContain(
      'gatepost_push_messages_total{provider="fcm",outcome="sent"} 2500',
    );
    expect(test.log.text()).not.toContain(planned.tokens[0]);
  });

  it("drops devices that have gone, have expired or use another provider by now", async () => {
    const planned = await test.plan({ devices: 10 });
    const [gone, expired, moved] = planned.deviceIds;
    await test.db.execute(sql`delete from push.devices where id = ${gone}::bigint`);
    await test.db.execute(sql`
      update push.devices set expires_at = now() - interval '1 second' where id = ${expired}::bigint`);
    await test.db.execute(sql`update push.devices set provider = 'apns' where id = ${moved}::bigint`);
    test.startWorker({ providers: [fcm] });
    const [chunk] = await test.until(planned, ["DONE"]);
    expect(chunk).toMatchObject({ planned: 10, sent: 7, dropped: 3, failed: 0 });
    expect(fake.ledger.summary().messages).toBe(7);
  });

  it("removes devices that the provider reports dead, and counts them as failed", async () => {
    const before = (await deviceCount()) ?? 0;
    const planned = await test.plan({ devices: 300, token: (index) => tokenOf("dead", index) });
    fake.play({ tokenPattern: "^dead-0*[0-9]-", answer: "UNREGISTERED" });
    test.startWorker({ providers: [fcm] });
    const [chunk] = await test.until(planned, ["DONE"]);
    expect(chunk).toMatchObject({ sent: 290, failed: 10 });
    await eventually(async () => (await deviceCount()) === before + 290);
  });

  it("keeps a device that was renewed after its chunk was loaded, whatever the provider says", async () => {
    const planned = await test.plan({ devices: 2 });
    const [renewed, other] = planned.deviceIds;
    const playing = fake.play({ tokenPattern: "^\\w", answer: "UNREGISTERED", delayMs: 2_000 });
    test.startWorker({ providers: [fcm] });
    // The messages have gone out, so the devices have been loaded.
    await eventually(() => playing.played === 2);
    await test.db.execute(sql`update push.devices set renewed_at = now() where id = ${renewed}::bigint`);
    expect((await test.until(planned, ["DONE"]))[0]).toMatchObject({ failed: 2 });
    const left = () =>
      rows<{ id: number }>(test.db, sql`select id::int from push.devices where id in (${renewed}, ${other})`);
    await eventually(async () => (await left()).length < 2);
    expect(await left()).toEqual([{ id: renewed }]);
  });

  it("goes on after a pause where it was, and nobody is notified twice", async () => {
    const planned = await test.plan({ devices: 600, chunkSize: 300 });
    test.startWorker({ providers: [fcm], settings: { maxPerSecond: 200 } });
    await eventually(() => fake.ledger.summary().messages > 50);
    const pausedAt = stopwatch();
    await test.pause(planned);
    await test.until(planned, ["PARKED", "DONE"]);
    expect(pausedAt()).toBeLessThan(2_000);
    const atPause = fake.ledger.summary().messages;
    expect(atPause).toBeLessThan(600);
    await new Promise((resolve) => setTimeout(resolve, 600));
    expect(fake.ledger.summary().messages).toBe(atPause);
    const held = await test.chunks(planned);
    expect(held.reduce((sum, { sent }) => sum + sent, 0)).toBe(atPause);
    expect(await test.openChunks()).toBe(0);
    await test.resume(planned);
    const chunks = await test.until(planned, ["DONE"]);
    expect(chunks.map(({ sent }) => sent)).toEqual([300, 300]);
    expect(fake.ledger.summary()).toMatchObject({ tokens: 600, messages: 600 });
  });

  it("drops what is left when its notification is cancelled", async () => {
    const planned = await test.plan({ devices: 600, chunkSize: 300 });
    test.startWorker({ providers: [fcm], settings: { maxPerSecond: 200 } });
    await eventually(() => fake.ledger.summary().messages > 20);
    await test.setState(planned, "CANCELLED");
    const chunks = await test.until(planned, ["DONE"]);
    const { messages } = fake.ledger.summary();
    expect(chunks.reduce((sum, { sent }) => sum + sent, 0)).toBe(messages);
    expect(chunks.reduce((sum, { dropped }) => sum + dropped, 0)).toBe(600 - messages);
    expect(chunks[1]).toMatchObject({ sent: 0, dropped: 300 });
  });

  it("drops what has not been sent when a notification expires, before and while it is sent", async () => {
    const late = await test.plan({ devices: 5, ttl: 0 });
    const short = await test.plan({ devices: 600, ttl: 3 });
    test.startWorker({ providers: [fcm], settings: { maxPerSecond: 100 } });
    expect((await test.until(late, ["DONE"]))[0]).toMatchObject({ sent: 0, dropped: 5 });
    const chunks = await test.until(short, ["DONE"]);
    const sum = (count: "sent" | "dropped") => chunks.reduce((all, chunk) => all + chunk[count], 0);
    expect(sum("sent")).toBeGreaterThan(0);
    expect(sum("dropped")).toBeGreaterThan(100);
    expect(fake.ledger.summary().messages).toBe(sum("sent"));
  });

  it("puts back at once what is left when the process is to end, so that another goes on", async () => {
    const planned = await test.plan({ devices: 400 });
    const first = test.startWorker({ providers: [fcm], settings: { maxPerSecond: 200 } });
    await eventually(() => fake.ledger.summary().messages > 20);
    const asked = stopwatch();
    await first.stop();
    expect(asked()).toBeLessThan(1_000);
    const [left] = await test.chunks(planned);
    expect(left).toMatchObject({ state: "READY", retries: 0, sent: fake.ledger.summary().messages });
    test.startWorker({ providers: [fcm] });
    expect((await test.until(planned, ["DONE"]))[0]).toMatchObject({ sent: 400 });
    expect(fake.ledger.summary()).toMatchObject({ tokens: 400, messages: 400 });
  });

  it("cannot write a chunk that another process has taken meanwhile", async () => {
    const planned = await test.plan({ devices: 20 });
    fake.play({ delayMs: 1_500 });
    test.startWorker({ providers: [fcm] });
    await test.until(planned, ["TAKEN"]);
    await test.db.execute(sql`
      update push.delivery_chunks set attempt = ${randomUUID()}::uuid
      where notification_id = ${planned.notificationId}::uuid`);
    await eventually(() => test.log.text().includes("taken over by another process"));
    expect((await test.chunks(planned))[0]).toMatchObject({ state: "TAKEN", sent: 0, rest: 20 });
    await test.setState(planned, "CANCELLED");
  });

  it("lets a process that was taken for dead take nothing, until it has another id", async () => {
    const [first, second] = [await test.plan({ devices: 1 }), await test.plan({ devices: 1 })];
    test.startWorker({ providers: [fcm] });
    await test.until(first, ["DONE"]);
    await test.until(second, ["DONE"]);
    const ids = () => rows<{ id: string }>(test.db, sql`select id::text from push.processes`);
    const [before] = await ids();
    await test.db.execute(sql`delete from push.processes`);
    expect((await test.until(await test.plan({ devices: 5 }), ["DONE"]))[0]).toMatchObject({ sent: 5 });
    const [after] = await ids();
    expect(after?.id).not.toBe(before?.id);
  });

  it("honours Retry-After: nothing is sent before, everything afterwards", async () => {
    const planned = await test.plan({
      devices: 300,
      chunkSize: 100,
      token: (index) => tokenOf("limited", index),
    });
    const playing = fake.play({ tokenPattern: "^limited-", answer: "QUOTA_EXCEEDED", retryAfter: 8 });
    const startedAt = Date.now();
    test.startWorker({ providers: [fcm] });
    await eventually(() => playing.played > 0);
    // No more refusals than messages.
    expect(await atRest(() => playing.played)).toBeLessThanOrEqual(300);
    playing.stop();
    const chunks = await test.until(planned, ["DONE"]);
    expect(chunks.map(({ sent }) => sent)).toEqual([100, 100, 100]);
    const { firstAt, ...summary } = fake.ledger.summary();
    expect(summary).toMatchObject({ tokens: 300, messages: 300 });
    // All of 8 seconds, but for what the clocks round.
    expect((firstAt ?? 0) - startedAt).toBeGreaterThan(7_900);
  });

  it("503s now and then stop nobody: the others go on, and those that they hit are sent a little later", async () => {
    const planned = await test.plan({ devices: 2_000, token: (index) => tokenOf("sporadic", index) });
    const playing = fake.play({
      tokenPrefix: "sporadic-",
      answer: "UNAVAILABLE",
      share: 0.02,
      retryAfter: 8,
    });
    test.startWorker({ providers: [fcm] });
    await eventually(async () => (await test.chunks(planned)).every(({ sent }) => sent > 0));
    const first = await test.until(planned, ["WAITING", "DONE"]);
    const sentAtFirst = first.reduce((sum, { sent }) => sum + sent, 0);
    expect(sentAtFirst).toBe(2_000 - playing.played);
    expect(playing.played).toBeGreaterThan(0);
    playing.stop();
    const chunks = await test.until(planned, ["DONE"]);
    expect(chunks.map(({ sent }) => sent)).toEqual([1_000, 1_000]);
    expect(fake.ledger.summary()).toMatchObject({ tokens: 2_000, messages: 2_000, repeats: 0 });
    // The row of a provider that was never paused is not even there.
    expect(await rows(test.db, sql`select provider from push.provider_states`)).toEqual([]);
  });
});

/** Of a form that FCM has, with the index in the middle. */
function tokenOf(name: string, index: number): string {
  return `${name}-${String(index).padStart(6, "0")}-${"x".repeat(32)}`;
}
