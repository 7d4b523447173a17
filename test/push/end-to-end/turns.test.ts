/** The order in which notifications are sent that wait at the same time. */
import { describe, expect, it } from "vitest";
import { backends } from "../../support/servers.ts";
import { until } from "./operator.ts";
import {
  createSendingLab,
  devicesAt,
  offsetsFrom,
  type PushInstance,
  type SendingLab,
  testUser,
} from "./sending-lab.ts";

/** Messages a second: what waits is in line for long enough to be overtaken, however busy the machine is. */
const env = { PUSH_MAX_PER_SECOND: "100" };
/** Many chunks, which take half a minute. */
const large = { offsets: offsetsFrom(-720, 30), devices: 3_000 };
const halfOfLarge = large.devices / 2;

describe.each(backends)("sends that wait at the same time, on %s", (backend) => {
  /** A large one that has begun. @returns its id */
  async function beginLarge(lab: SendingLab, push: PushInstance): Promise<string> {
    await lab.addDevices(devicesAt(large.offsets, large.devices, "large"));
    const id = await push.send({ utcOffsets: large.offsets });
    await until("the large one goes out", () => lab.fcm.ledger.summary().messages > 0);
    return id;
  }

  it("take turns: a small one does not wait for a large one", async () => {
    await using lab = await createSendingLab(backend);
    const push = await lab.start({ env });
    await lab.addDevices(devicesAt([840], 10, "small"));
    const first = await beginLarge(lab, push);
    expect(await push.ended(await push.send({ utcOffsets: [840] }))).toMatchObject({ sent: 10 });
    expect(await push.progress(first)).toMatchObject({ state: "SENDING", planned: large.devices });
    expect((await push.progress(first)).sent).toBeLessThan(halfOfLarge);
  });

  it("let a test run go first, before all chunks of sends that were accepted earlier", async () => {
    await using lab = await createSendingLab(backend);
    const push = await lab.start({ env: { PUSH_MAX_PER_SECOND: "50" } });
    await lab.addDevices([{ token: "of-the-tester", userId: testUser, utcOffset: 840 }]);
    // The first chunks of ten notifications, whose turn it is before that of any other chunk.
    const offsets = large.offsets.slice(0, 10);
    await lab.addDevices(devicesAt(offsets, large.devices, "early"));
    for (const offset of offsets) {
      const id = await push.send({ utcOffsets: [offset] });
      await until("it is planned", async () => (await push.progress(id)).planned === 300);
    }
    expect((await push.call("startTestNotifications")).status).toBe(202);
    await until("the tester has it", () => lab.fcm.ledger.token("of-the-tester") !== undefined);
    expect(lab.fcm.ledger.summary().messages).toBeLessThan(halfOfLarge);
  });

  it("let what was tried before come behind what is fresh", async () => {
    // A retry is due every second, so that there is always one that could come first.
    await using lab = await createSendingLab(backend, { maxRetries: 1_000, retriesInARow: 1_000 });
    const { fcm } = lab;
    const push = await lab.start({ env: { PUSH_MAX_PER_SECOND: "150" } });
    const retried = { offsets: large.offsets.slice(0, 10), count: 30 };
    await lab.addDevices(devicesAt(retried.offsets, retried.count, "fails"));
    await lab.addDevices(devicesAt(retried.offsets, 30, "works"));
    const fresh = { offsets: large.offsets.slice(10, 20), count: 600 };
    await lab.addDevices(devicesAt(fresh.offsets, fresh.count, "fresh"));
    const failing = fcm.play({ tokenPrefix: "fails-", answer: "INTERNAL", retryAfter: 1 });
    const first = await push.send({ utcOffsets: retried.offsets });
    await until("each has failed", () => failing.played >= 2 * retried.count);
    expect(await push.progress(first)).toMatchObject({ sent: 30, remaining: retried.count });
    const second = await push.send({ utcOffsets: fresh.offsets });
    // What was taken before the fresh one came is over by then.
    await until("the fresh one goes out", () => fcm.ledger.summary().messages > 30 + 120);
    failing.stop();
    expect(await push.ended(second)).toMatchObject({ sent: fresh.count, failed: 0 });
    expect(await push.ended(first)).toMatchObject({ sent: 60, failed: 0, deadLettered: 0 });
    const order = fcm.ledger.tokens("", 2_000).map(({ token }) => token.split("-")[0]);
    // But for messages that were in flight at the same time.
    const before = order.slice(0, order.indexOf("fails")).filter((name) => name === "fresh").length;
    expect(before).toBeGreaterThan(fresh.count * 0.9);
    expect(fcm.ledger.summary()).toMatchObject({ tokens: 660, messages: 660, repeats: 0 });
  });
});
