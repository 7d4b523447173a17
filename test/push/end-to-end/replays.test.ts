/** Operators have dead letters sent again: each once, behind what is fresh, and not what nobody wants any more. */
import { describe, expect, it } from "vitest";
import { type Backend, backends, type Environment } from "../../support/servers.ts";
import { until } from "./operator.ts";
import { deadLetters } from "./operator-lists.ts";
import {
  appleDevicesAt,
  createSendingLab,
  devicesAt,
  offsetsFrom,
  type PushInstance,
  type SendingLab,
} from "./sending-lab.ts";

const offsets = offsetsFrom(0, 4);
/** Devices of each provider at these offsets. */
const devices = 12;
const working = 840;

/** A service that gives up what fails once, and knows that its providers work. */
async function createReplayLab(backend: Backend, env: Environment = {}) {
  const lab = await createSendingLab(backend, { maxRetries: 0, retriesInARow: 1_000 });
  const push = await lab.start({ env });
  await lab.addDevices([...devicesAt([working], 1, "works"), ...appleDevicesAt([working], 1, "works")]);
  await lab.addDevices([
    ...devicesAt(offsets, devices, "fails"),
    ...appleDevicesAt(offsets, devices, "fails"),
  ]);
  expect(await push.ended(await push.send({ utcOffsets: [working] }))).toMatchObject({ sent: 2 });
  return { lab, push };
}

/** A send all of which is given up. @returns its id */
async function allDead(lab: SendingLab, push: PushInstance): Promise<string> {
  const failing = [lab.fcm.play({ answer: "INTERNAL" }), lab.apns.play({ answer: "InternalServerError" })];
  const id = await push.send({ utcOffsets: offsets });
  expect(await push.ended(id)).toMatchObject({ sent: 0, deadLettered: 2 * devices, remaining: 0 });
  for (const one of failing) one.stop();
  return id;
}

async function replayAll({ call, as }: PushInstance, query = ""): Promise<void> {
  expect((await call("replayAllDeadLetters", { as, query })).status).toBe(202);
}

const sent = ({ fcm, apns }: SendingLab) => ({
  fcm: fcm.ledger.summary().messages,
  apns: apns.ledger.summary().messages,
});

describe.each(backends)("dead letters on %s", (backend) => {
  it("are all sent again, once each, and their notifications go on", async () => {
    const { lab, push } = await createReplayLab(backend);
    await using _ = lab;
    const ids = [await allDead(lab, push), await allDead(lab, push)];
    const letters = await deadLetters(push);
    expect(letters.reduce((sum, letter) => sum + letter.devices, 0)).toBe(4 * devices);
    await replayAll(push);
    await replayAll(push);
    await until("none is left", async () => (await deadLetters(push)).length === 0);
    for (const id of ids) {
      await until("all is sent", async () => (await push.progress(id)).sent === 2 * devices);
      expect(await push.ended(id)).toMatchObject({ state: "COMPLETED", deadLettered: 0, failed: 0 });
    }
    expect(sent(lab)).toEqual({ fcm: 1 + 2 * devices, apns: 1 + 2 * devices });
    expect(lab.fcm.ledger.summary()).toMatchObject({ tokens: 1 + devices, repeats: 0 });
  });

  it("of a notification, of a provider, or of both are sent again, and no others", async () => {
    const { lab, push } = await createReplayLab(backend);
    await using _ = lab;
    const [first, second] = [await allDead(lab, push), await allDead(lab, push)];
    const left = async () =>
      (await deadLetters(push)).map(({ notificationId, provider }) => `${notificationId} ${provider}`);
    const becomes = (...those: readonly string[]) =>
      until(
        "these are left",
        async () => new Set(await left()).symmetricDifference(new Set(those)).size === 0,
      );
    await becomes(`${first} fcm`, `${first} apns`, `${second} fcm`, `${second} apns`);
    await replayAll(push, `?notificationId=${first}&provider=fcm`);
    await becomes(`${first} apns`, `${second} fcm`, `${second} apns`);
    await replayAll(push, "?provider=fcm");
    await becomes(`${first} apns`, `${second} apns`);
    await replayAll(push, `?notificationId=${second}`);
    await becomes(`${first} apns`);
    await until("these are sent", async () => (await push.progress(second)).sent === 2 * devices);
    expect(sent(lab)).toEqual({ fcm: 1 + 2 * devices, apns: 1 + devices });
  });

  it("stay, if their notification was cancelled or recalled, and wait while it is paused", async () => {
    const { lab, push } = await createReplayLab(backend);
    await using _ = lab;
    await lab.addDevices(devicesAt([working], 400, "slow"));
    const ids = { cancelled: "", recalled: "", paused: "" };
    for (const name of ["cancelled", "recalled", "paused"] as const) {
      // Its dead letters are there while a part of it is still to be sent.
      const failing = lab.apns.play({ answer: "InternalServerError" });
      const holding = lab.fcm.play({ tokenPrefix: "slow-", delayMs: 4_000 });
      ids[name] = await push.send({ utcOffsets: [working, ...offsets] });
      await until(
        "APNs has failed",
        async () => (await push.progress(ids[name])).deadLettered === devices + 1,
      );
      for (const one of [failing, holding]) one.stop();
      if (name === "paused") await push.pause(ids.paused);
      else if (name === "cancelled") await push.cancel(ids.cancelled);
      else await push.call("recallNotification", { as: push.as, path: { id: ids.recalled } });
    }
    const before = sent(lab).apns;
    const letters = await deadLetters(push);
    await replayAll(push);
    await until("those of the paused one are none any more", async () =>
      (await deadLetters(push)).every(({ notificationId }) => notificationId !== ids.paused),
    );
    const left = new Set((await deadLetters(push)).map(({ notificationId }) => notificationId));
    expect(left).toEqual(new Set([ids.cancelled, ids.recalled]));
    const [letter] = letters.filter(({ notificationId }) => notificationId === ids.cancelled);
    const one = { as: push.as, path: { id: letter?.id ?? "" } };
    expect((await push.call("replayDeadLetter", one)).status).toBe(409);
    expect(sent(lab).apns).toBe(before);
    expect(await push.progress(ids.paused)).toMatchObject({ state: "PAUSED", deadLettered: 0 });
    await push.resume(ids.paused);
    const all = { planned: 402 + 2 * devices, sent: 402 + 2 * devices };
    expect(await push.ended(ids.paused)).toMatchObject({ state: "COMPLETED", ...all });
  });

  it("are listed page by page, those given up last first, with what they hold", async () => {
    const { lab, push } = await createReplayLab(backend);
    await using _ = lab;
    const page = async (query: string) =>
      Object((await push.call("listDeadLetters", { as: push.as, query })).body);
    expect(await page("")).toMatchObject({ content: [], totalElements: 0 });
    const [first, second] = [await allDead(lab, push), await allDead(lab, push)];
    const all = await deadLetters(push);
    const count = 2 * 2 * offsets.length;
    expect(all.map(({ notificationId }) => notificationId)).toEqual([
      ...Array(count / 2).fill(second),
      ...Array(count / 2).fill(first),
    ]);
    const each = devices / offsets.length;
    for (const { provider, devices: held, reason, utcOffset } of all) {
      expect(offsets).toContain(utcOffset);
      const reasons = { fcm: "500 INTERNAL", apns: "500 InternalServerError" };
      expect({ provider, held, reason }).toEqual({ provider, held: each, reason: Object(reasons)[provider] });
    }
    const [newest, next] = all;
    expect(await page("?page=0&size=1")).toMatchObject({ content: [newest], totalElements: count });
    expect(await page("?page=1&size=1")).toMatchObject({ content: [next], totalElements: count });
    expect(await page("?page=99&size=1")).toMatchObject({ content: [], totalElements: count });
    const unknown = { as: push.as, path: { id: "9999999999" } };
    const { status, body } = await push.call("replayDeadLetter", unknown);
    expect([status, Object(body).code]).toEqual([404, "dead_letter_not_found"]);
    expect(sent(lab)).toEqual({ fcm: 1, apns: 1 });
  });

  it.runIf(backend === "PGlite")("of an expired notification stay, and are not sent again", async () => {
    const { lab, push } = await createReplayLab(backend, { PUSH_TTL_SECONDS: "60" });
    await using _ = lab;
    await allDead(lab, push);
    const before = await deadLetters(push);
    lab.passMinute();
    const [letter] = before;
    const one = { as: push.as, path: { id: letter?.id ?? "" } };
    const { status, body } = await push.call("replayDeadLetter", one);
    expect([status, Object(body).code]).toEqual([409, "notification_finished"]);
    await replayAll(push);
    // What is accepted after it is sent: it was not only late.
    expect(await push.ended(await push.send({ utcOffsets: [working] }))).toMatchObject({ sent: 2 });
    expect(await deadLetters(push)).toEqual(before);
    expect(sent(lab)).toEqual({ fcm: 2, apns: 2 });
  });

  it("are sent again once, however many ask for it at the same time", async () => {
    const { lab, push } = await createReplayLab(backend);
    await using _ = lab;
    const id = await allDead(lab, push);
    const [letter] = await deadLetters(push);
    const one = { as: push.as, path: { id: letter?.id ?? "" } };
    const asked = await Promise.all(Array.from({ length: 20 }, () => push.call("replayDeadLetter", one)));
    const statuses = asked.map(({ status }) => status).sort((a, b) => a - b);
    expect(statuses).toEqual([204, ...Array(19).fill(404)]);
    const count = letter?.devices ?? 0;
    await until("it is sent", async () => (await push.progress(id)).sent === count);
    expect(await push.ended(id)).toMatchObject({ deadLettered: 2 * devices - count });
    expect(sent(lab).fcm + sent(lab).apns).toBe(2 + count);
  });

  it("are sent again behind what is fresh", async () => {
    const { lab, push } = await createReplayLab(backend, { PUSH_MAX_PER_SECOND: "150" });
    await using _ = lab;
    const fresh = { offsets: offsetsFrom(-720, 10), count: 600 };
    await lab.addDevices(devicesAt(fresh.offsets, fresh.count, "fresh"));
    const dead = await allDead(lab, push);
    const id = await push.send({ utcOffsets: fresh.offsets });
    await until("the fresh one goes out", () => sent(lab).fcm > 1);
    await replayAll(push);
    expect(await push.ended(id)).toMatchObject({ sent: fresh.count });
    await until("all is sent", async () => (await push.progress(dead)).sent === 2 * devices);
    const order = lab.fcm.ledger.tokens("", 1_000).map(({ token }) => token.split("-")[0]);
    // But for messages that were in flight at the same time.
    const before = order.slice(0, order.indexOf("fails")).filter((name) => name === "fresh").length;
    expect(before).toBeGreaterThan(fresh.count * 0.9);
  });
});
