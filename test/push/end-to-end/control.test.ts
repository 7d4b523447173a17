/** What operators pause, resume, cancel and recall: it stands still or ends, loses nothing, and is in nobody's way. */
import { describe, expect, it } from "vitest";
import { backends } from "../../support/servers.ts";
import { atRest } from "../../support/wait-for.ts";
import { holdWriters } from "./faults.ts";
import { until } from "./operator.ts";
import { createSendingLab, devicesAt, offsetsFrom, type SendingLab } from "./sending-lab.ts";

/** As many chunks as a send can have at one provider in a single step of planning. */
const offsets = offsetsFrom(-720, 64);
const devices = 640;
/** Somewhere else. */
const other = 840;
/** Messages a second: a send takes seconds. */
const env = { PUSH_MAX_PER_SECOND: "200" };

const messages = ({ fcm }: SendingLab) => fcm.ledger.summary().messages;

describe.each(backends)("operators on %s", (backend) => {
  /** A send of many chunks of which a part has gone out, and a device somewhere else. */
  async function partlySent() {
    const lab = await createSendingLab(backend);
    const push = await lab.start({ env });
    await lab.addDevices([...devicesAt(offsets, devices, "device"), ...devicesAt([other], 5, "other")]);
    const id = await push.send({ utcOffsets: offsets });
    await until("a part is sent", () => messages(lab) > 100);
    return { lab, push, id };
  }

  it("pause a send of many chunks: others go on; resumed, everybody gets it once", async () => {
    const { lab, push, id } = await partlySent();
    await using _ = lab;
    await push.pause(id);
    const sent = await atRest(() => messages(lab));
    expect(sent).toBeLessThan(devices);
    const rest = { planned: devices, sent, remaining: devices - sent, failed: 0, dropped: 0 };
    expect(await push.progress(id)).toMatchObject({ state: "PAUSED", ...rest });
    expect(await push.ended(await push.send({ utcOffsets: [other] }))).toMatchObject({ sent: 5 });
    expect(await push.progress(id)).toMatchObject({ state: "PAUSED", ...rest });

    await push.resume(id);
    expect(await push.ended(id)).toMatchObject({ state: "COMPLETED", sent: devices, deadLettered: 0 });
    const total = devices + 5;
    expect(lab.fcm.ledger.summary()).toMatchObject({ tokens: total, messages: total, repeats: 0 });
  });

  it.each(["pauseNotification", "cancelNotification"])(
    "%s: a chunk that is being sent stops",
    async (act) => {
      // A chunk that would be sent in one go.
      await using lab = await createSendingLab(backend, { maxSendingMs: 60_000 });
      const push = await lab.start({ env });
      const chunk = 1_000;
      await lab.addDevices(devicesAt([0], chunk, "device"));
      const id = await push.send({ utcOffsets: [0] });
      await until("a part is sent", () => messages(lab) > 10);
      expect((await push.call(act, { as: push.as, path: { id } })).status).toBe(200);
      const sent = await atRest(() => messages(lab));
      expect(sent).toBeLessThan(chunk * 0.9);
      await until("what was sent is written down", async () => (await push.progress(id)).sent === sent);
      if (act === "pauseNotification") await push.resume(id);
      const left = chunk - sent;
      const ends = act === "pauseNotification" ? { sent: chunk, dropped: 0 } : { sent, dropped: left };
      expect(await push.ended(id)).toMatchObject({ planned: chunk, ...ends, remaining: 0 });
      expect(lab.fcm.ledger.summary().repeats).toBe(0);
    },
  );

  it("pause a send through the stop of its process, which loses nothing of it", async () => {
    const { lab, push, id } = await partlySent();
    await using _ = lab;
    await push.pause(id);
    await push.stop();
    const sent = messages(lab);
    const next = await lab.start();
    expect(await next.progress(id)).toMatchObject({ state: "PAUSED", sent, remaining: devices - sent });
    expect(await next.ended(await next.send({ utcOffsets: [other] }))).toMatchObject({ sent: 5 });
    expect(await next.progress(id)).toMatchObject({ state: "PAUSED", sent });
    await next.resume(id);
    expect(await next.ended(id)).toMatchObject({ state: "COMPLETED", sent: devices });
    expect(lab.fcm.ledger.summary()).toMatchObject({ tokens: devices + 5, repeats: 0 });
  });

  it("pause one before it is planned: it is planned when it is resumed", async () => {
    await using lab = await createSendingLab(backend);
    const push = await lab.start({ isIdle: true });
    await lab.addDevices([...devicesAt(offsets, devices, "device"), ...devicesAt([other], 5, "other")]);
    const id = await push.send({ utcOffsets: offsets });
    expect(await push.pause(id)).toMatchObject({ state: "PAUSED", planned: 0 });
    push.service.startWorkers();
    expect(await push.ended(await push.send({ utcOffsets: [other] }))).toMatchObject({ sent: 5 });
    expect(await push.progress(id)).toMatchObject({ state: "PAUSED", planned: 0, recipients: 0 });
    await push.resume(id);
    const all = { planned: devices, sent: devices, recipients: devices };
    expect(await push.ended(id)).toMatchObject({ state: "COMPLETED", ...all });
    expect(lab.fcm.ledger.summary()).toMatchObject({ tokens: devices + 5, repeats: 0 });
  });

  it.runIf(backend === "PostgreSQL").each([
    { act: "pauseNotification", state: "PAUSED" },
    { act: "cancelNotification", state: "CANCELLED" },
    { act: "recallNotification", state: "CANCELLED" },
  ])("$act one in the middle of its planning, which is undone", async ({ act, state }) => {
    await using lab = await createSendingLab(backend);
    const push = await lab.start();
    await lab.addDevices(devicesAt([0], 50, "device"));
    let id = "";
    {
      await using held = await holdWriters(lab.db, "history_blocks");
      id = await push.send({ utcOffsets: [0] });
      await until("it is being planned", () => held.isMet());
      const { status, text } = await push.call(act, { as: push.as, path: { id } });
      expect([status, JSON.parse(text).state]).toEqual([200, state]);
    }
    await lab.addDevices(devicesAt([60], 5, "other"));
    expect(await push.ended(await push.send({ utcOffsets: [60] }))).toMatchObject({ sent: 5 });
    expect(await push.progress(id)).toMatchObject({ state, planned: 0, recipients: 0, sent: 0 });
    if (state === "PAUSED") await push.resume(id);
    const all = state === "PAUSED" ? 50 : 0;
    expect(await push.ended(id)).toMatchObject({ planned: all, sent: all, recipients: all });
    expect(lab.fcm.ledger.summary()).toMatchObject({ messages: all + 5, repeats: 0 });
  });

  it("pause and resume one again and again while it is planned and sent: everybody gets it once", async () => {
    const many = 3_000;
    await using lab = await createSendingLab(backend);
    const push = await lab.start();
    await lab.addDevices(devicesAt(offsets, many, "device"));
    const id = await push.send({ utcOffsets: offsets });
    const states = new Set<string>();
    for (let round = 0; round < 12; round += 1) {
      const paused = await push.call("pauseNotification", { as: push.as, path: { id } });
      // It may have ended.
      if (paused.status === 409) break;
      states.add((await push.progress(id)).state);
      states.add((await push.resume(id)).state);
    }
    expect([...states]).toContain("PAUSED");
    const all = { planned: many, sent: many, recipients: many };
    expect(await push.ended(id)).toMatchObject({ state: "COMPLETED", ...all });
    expect(lab.fcm.ledger.summary()).toMatchObject({ tokens: many, messages: many, repeats: 0 });
  });

  it.each([
    { act: "cancelNotification", isPaused: false, found: 1 },
    { act: "cancelNotification", isPaused: true, found: 1 },
    { act: "recallNotification", isPaused: false, found: 0 },
    { act: "recallNotification", isPaused: true, found: 0 },
  ])("$act (paused before: $isPaused): what is left is dropped and counted, and it ends", async (test) => {
    const { lab, push, id } = await partlySent();
    await using _ = lab;
    if (test.isPaused) await push.pause(id);
    expect((await push.call(test.act, { as: push.as, path: { id } })).status).toBe(200);
    const progress = await push.ended(id);
    const sent = await atRest(() => messages(lab));
    expect(sent).toBeLessThan(devices);
    expect(progress).toMatchObject({
      ...{ state: "CANCELLED", planned: devices, sent, dropped: devices - sent },
      ...{ failed: 0, deadLettered: 0, remaining: 0 },
    });
    expect(progress.recalledAt === null ? 1 : 0).toBe(test.found);
    expect(await push.ended(await push.send({ utcOffsets: [other] }))).toMatchObject({ sent: 5 });
    expect(messages(lab)).toBe(sent + 5);
  });
});
