/** What waits, for its provider, for its operator or for its next try, loses nothing and keeps nothing waiting. */
import { describe, expect, it } from "vitest";
import { backends } from "../../support/servers.ts";
import { atRest } from "../../support/wait-for.ts";
import { until } from "./operator.ts";
import { sentBy, statusOf } from "./operator-lists.ts";
import {
  appleDevicesAt,
  createSendingLab,
  devicesAt,
  offsetsFrom,
  type PushInstance,
  type SendingLab,
} from "./sending-lab.ts";

const offsets = offsetsFrom(-720, 64);
const apple = { devices: 128, offsets };

const appleDevices = () => appleDevicesAt(apple.offsets, apple.devices, "apple");

/** Has APNs refuse us for as long as nobody ends the pause; a send to its devices has begun, and waits. */
async function pauseApns(lab: SendingLab, push: PushInstance) {
  const refusing = lab.apns.play({ answer: "InvalidProviderToken" });
  const id = await push.send({ utcOffsets: offsets });
  await until("APNs is paused", async () => (await statusOf(push, "apns"))?.state === "REFUSED");
  return { id, refusing };
}

async function resumeApns({ call, as }: PushInstance): Promise<void> {
  const path = { provider: "apns" };
  expect((await call("resumeProvider", { as, path })).status).toBe(200);
}

describe.each(backends)("on %s", (backend) => {
  it("a paused provider's messages wait while those of others go out, and all go when the pause ends", async () => {
    await using lab = await createSendingLab(backend);
    const push = await lab.start();
    await lab.addDevices([...appleDevices(), ...devicesAt(offsets, 192, "google")]);
    const { id, refusing } = await pauseApns(lab, push);
    await until("the others are sent", async () => (await sentBy(push, id, "fcm")) === 192);
    const asked = await atRest(() => refusing.played);
    const waiting = { state: "SENDING", sent: 192, failed: 0, dropped: 0, deadLettered: 0 };
    expect(await push.progress(id)).toMatchObject({ ...waiting, remaining: apple.devices });
    const metrics = await push.metrics.registry.metrics();
    expect(metrics).toContain('gatepost_push_provider_paused{provider="apns",cause="refused"} 1');
    expect(metrics).toContain('gatepost_push_provider_paused{provider="fcm",cause="refused"} 0');

    refusing.stop();
    await resumeApns(push);
    const all = { sent: 192 + apple.devices, failed: 0, deadLettered: 0, remaining: 0 };
    expect(await push.ended(id)).toMatchObject({ state: "COMPLETED", ...all });
    expect(lab.apns.ledger.summary()).toMatchObject({ tokens: apple.devices, repeats: 0 });
    expect(refusing.played).toBe(asked);
    expect(await statusOf(push, "apns")).toMatchObject({ state: "OPEN" });
  });

  it("a paused provider's messages wait through the end of their process, and for their turn after it", async () => {
    await using lab = await createSendingLab(backend);
    const first = await lab.start();
    await lab.addDevices(appleDevices());
    const { id, refusing } = await pauseApns(lab, first);
    await first.stop();
    refusing.stop();
    const next = await lab.start();
    expect(await statusOf(next, "apns")).toMatchObject({ state: "REFUSED" });
    expect(await next.progress(id)).toMatchObject({ sent: 0, remaining: apple.devices });
    await resumeApns(next);
    expect(await next.ended(id)).toMatchObject({ state: "COMPLETED", sent: apple.devices, failed: 0 });
    expect(lab.apns.ledger.summary()).toMatchObject({ tokens: apple.devices, repeats: 0 });
  });

  it("a paused and cancelled send of a paused provider ends at once: its messages wait for nothing more", async () => {
    await using lab = await createSendingLab(backend);
    const push = await lab.start();
    await lab.addDevices(appleDevices());
    const { id } = await pauseApns(lab, push);
    await push.pause(id);
    await push.cancel(id);
    const dropped = { sent: 0, dropped: apple.devices, remaining: 0 };
    expect(await push.ended(id)).toMatchObject({ state: "CANCELLED", ...dropped });
  });

  it("what was tried before, paused sends and a paused provider beside it keep no fresh send waiting", async () => {
    await using lab = await createSendingLab(backend, { maxRetries: 1_000, retriesInARow: 1_000 });
    const { fcm } = lab;
    const push = await lab.start();
    const [far = 0, ...near] = offsets;
    await lab.addDevices([...appleDevices(), ...devicesAt(near, 126, "fails")]);
    await lab.addDevices(devicesAt(near, 126, "works"));
    const failing = fcm.play({ tokenPrefix: "fails-", answer: "INTERNAL", retryAfter: 1 });
    const { id: retried, refusing } = await pauseApns(lab, push);
    const paused = await push.send({ utcOffsets: near });
    await push.pause(paused);
    await until("the rest of the first one is tried again and again", async () => {
      return (await sentBy(push, retried, "fcm")) === 126 && failing.played >= 126;
    });
    await atRest(() => fcm.ledger.summary().messages);
    const before = await push.progress(paused);

    await lab.addDevices(devicesAt([far], 300, "fresh"));
    const fresh = await push.send({ utcOffsets: [far] });
    await until("the fresh one is sent", async () => (await sentBy(push, fresh, "fcm")) === 300);
    // The two of APNs at its offset.
    expect(await push.progress(fresh)).toMatchObject({ sent: 300, remaining: 2 });
    expect(await push.progress(paused)).toMatchObject({ state: "PAUSED", sent: before.sent });
    expect(await push.progress(retried)).toMatchObject({ sent: 126, failed: 0, deadLettered: 0 });

    failing.stop();
    refusing.stop();
    await resumeApns(push);
    await push.resume(paused);
    const sums = { [retried]: 126 * 2 + 128, [paused]: 126 * 2 + 126, [fresh]: 300 + 2 };
    for (const [id, sent] of Object.entries(sums))
      expect(await push.ended(id)).toMatchObject({
        state: "COMPLETED",
        sent,
        planned: sent,
        deadLettered: 0,
      });
    expect(fcm.ledger.summary().repeats + lab.apns.ledger.summary().repeats).toBe(0);
  });
});
