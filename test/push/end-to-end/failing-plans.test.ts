/** A part of a notification that cannot be planned is tried again each minute, and nobody of it is lost. */
import { describe, expect, it } from "vitest";
import { breakDatabase } from "./faults.ts";
import { until } from "./operator.ts";
import { createSendingLab, devicesAt } from "./sending-lab.ts";

/** More than the tries that anything has which is given up. */
const minutes = 14;

describe("planning that fails, on PGlite, whose clock a test can move", () => {
  it("goes on when the fault has ended, however long it lasts; others are planned and sent meanwhile", async () => {
    await using lab = await createSendingLab("PGlite");
    const push = await lab.start({ isIdle: true });
    await lab.addDevices([...devicesAt([0], 50, "late"), ...devicesAt([60], 5, "other")]);
    const id = await push.send({ utcOffsets: [0] });
    const fault = await breakDatabase(lab, {
      ...{ table: "history_blocks", where: `new.notification_id = '${id}'` },
    });
    push.service.startWorkers();
    for (let minute = 1; minute <= minutes; minute += 1) {
      await until("it has failed", () => lab.errors() >= minute);
      const progress = { state: "PLANNING", planned: 0, recipients: 0, completedAt: null };
      expect(await push.progress(id)).toMatchObject(progress);
      lab.passMinute();
    }
    expect(await push.ended(await push.send({ utcOffsets: [60] }))).toMatchObject({ sent: 5 });
    expect(lab.log.text()).toContain("A notification could not be planned yet");
    expect(lab.fcm.ledger.token("late-0")).toBeUndefined();

    await fault.mend();
    lab.passMinute();
    const all = { planned: 50, sent: 50, recipients: 50, deadLettered: 0 };
    expect(await push.ended(id)).toMatchObject({ state: "COMPLETED", ...all });
    expect(lab.fcm.ledger.summary()).toMatchObject({ tokens: 55, messages: 55 });
  });

  it("of its rest leaves what was planned before as it is: it is sent, and nobody is planned twice", async () => {
    const devices = 3_000;
    await using lab = await createSendingLab("PGlite");
    const push = await lab.start();
    await lab.addDevices(devicesAt([0], devices, "device"));
    const fault = await breakDatabase(lab, {
      table: "history_blocks",
      where: "exists (select from push.history_blocks b where b.notification_id = new.notification_id)",
    });
    const id = await push.send({ utcOffsets: [0] });
    for (let minute = 1; minute <= 3; minute += 1) {
      await until("it has failed", () => lab.errors() >= minute);
      lab.passMinute();
    }
    await until("what was planned is sent", async () => {
      const { planned, sent } = await push.progress(id);
      return planned > 0 && sent === planned;
    });
    const { planned, recipients, ...begun } = await push.progress(id);
    expect(begun).toMatchObject({ state: "PLANNING", completedAt: null });
    expect(planned).toBeLessThan(devices);
    expect(recipients).toBe(planned);

    await fault.mend();
    lab.passMinute();
    const all = { planned: devices, sent: devices, recipients: devices };
    expect(await push.ended(id)).toMatchObject({ state: "COMPLETED", ...all });
    expect(lab.fcm.ledger.summary()).toMatchObject({ tokens: devices, messages: devices });
  });
});
