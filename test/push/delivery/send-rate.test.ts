/** The limit that a notification has of its own: over all processes, below the provider's, and in nobody's way. */
import { sql } from "drizzle-orm";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { deliveryRules } from "../../../src/push/delivery/delivery-rules.ts";
import { createSendRate } from "../../../src/push/delivery/send-rate.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { createDeliveryTest, type DeliveryTest, eventually, recordingProvider } from "./delivery-fixture.ts";

const id = "0197aaaa-0000-7000-8000-000000000000";

describe.each(backends)("a notification's own rate on %s", (backend) => {
  let lab: DeliveryTest;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createDeliveryTest(backend);
    cleanup.defer(() => lab.close());
  });
  afterEach(async () => {
    await lab.stopWorkers();
    await lab.clearState();
    await lab.db.execute(sql`delete from push.send_rates`);
  });

  async function limited(devices: number, chunkSize: number, perSecond: number) {
    const planned = await lab.plan({ devices, chunkSize });
    await lab.db.execute(sql`
      update push.notifications set max_per_second = ${perSecond}::int where id = ${planned.notificationId}::uuid`);
    return planned;
  }

  test("reservations follow each other, and what would wait for more than two seconds queues in turn", async () => {
    const reserve = createSendRate(lab.db, deliveryRules);
    // Half a second each.
    const given = [];
    for (let turn = 0; turn < 5; turn += 1) given.push(await reserve(id, 10, 100));
    for (const [turn, one] of given.entries()) {
      if ("waitMs" in one) expect.fail(`${turn} waits`);
      expect(one).toMatchObject({ messages: 5 });
      expect(one.endMs - one.startMs).toBeCloseTo(500);
      // The database reckons in microseconds, and reads its clock more than once.
      expect(one.startMs).toBeLessThanOrEqual(turn * 500 + 1);
    }
    await lab.db.execute(sql`update push.send_rates set next_at = clock_timestamp() + interval '10 seconds'`);
    const waits = [];
    for (const wanted of [100, 50, 1]) waits.push(await reserve(id, 10, wanted));
    const [first = 0, second = 0, third = 0] = waits.map((one) => ("waitMs" in one ? one.waitMs : 0));
    expect(Math.round(first / 1000)).toBe(10);
    expect(Math.round((second - first) / 1000)).toBe(10);
    expect(Math.round((third - second) / 1000)).toBe(5);
    // A clock that was set back frees the notification.
    await lab.db.execute(sql`update push.send_rates set next_at = clock_timestamp() + interval '1 hour'`);
    expect(await reserve(id, 10, 1)).toMatchObject({ messages: 1, startMs: 0, endMs: 100 });
  });

  test("holds over two processes, and lets the messages of others by", async () => {
    const slow = await limited(300, 100, 100);
    const [one, two] = [recordingProvider(), recordingProvider()];
    const began = performance.now();
    lab.startWorker({ providers: [one] });
    lab.startWorker({ providers: [two] });
    await eventually(() => one.sent.length + two.sent.length > 50);
    const other = await lab.plan({ devices: 500 });
    lab.wakeUps.wake("chunks");
    await lab.until(other, ["DONE"]);
    const isSlow = ({ token }: { token: string }) => slow.tokens.includes(token);
    expect([...one.sent, ...two.sent].filter(isSlow).length).toBeLessThan(300);
    await lab.until(slow, ["DONE"]);
    const seconds = (performance.now() - began) / 1000;
    const moments = [...one.sent, ...two.sent].filter(isSlow).map(({ at }) => at);
    expect(moments).toHaveLength(300);
    expect(moments.length / seconds).toBeLessThan(100 * 1.2);
  });

  test("below the provider's own, which holds as well", async () => {
    const planned = await limited(100, 100, 1_000);
    const provider = recordingProvider();
    const began = performance.now();
    lab.startWorker({ providers: [provider], settings: { maxPerSecond: 50 } });
    await lab.until(planned, ["DONE"]);
    expect(provider.sent).toHaveLength(100);
    expect(100 / ((performance.now() - began) / 1000)).toBeLessThan(50 * 1.2);
  });

  test("a chunk whose turn is far off is WAITING, and nobody holds it", async () => {
    const planned = await limited(20, 2, 1);
    const provider = recordingProvider();
    lab.startWorker({ providers: [provider] });
    await eventually(async () => {
      const states = (await lab.chunks(planned)).map(({ state }) => state);
      return states.filter((state) => state === "WAITING").length >= 5;
    });
    const chunks = await lab.chunks(planned);
    expect(chunks.map(({ retries, reason }) => [retries, reason])).toEqual(chunks.map(() => [0, null]));
    expect(provider.sent.length).toBeLessThan(10);
  });
});
