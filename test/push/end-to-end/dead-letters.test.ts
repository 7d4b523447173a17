/** A chunk that cannot be dealt with: it is given up after ten tries, in nobody's way, and waits for an operator. */
import { describe, expect, it } from "vitest";
import { backends } from "../../support/servers.ts";
import { breakDatabase } from "./faults.ts";
import { until } from "./operator.ts";
import { deadLetters } from "./operator-lists.ts";
import { createSendingLab, devicesAt, offsetsFrom } from "./sending-lab.ts";

const offsets = offsetsFrom(0, 10);

describe("a chunk whose results cannot be stored, on PGlite, whose clock a test can move", () => {
  it("becomes a dead letter after ten tries; the others go out, and an operator replays it", async () => {
    await using lab = await createSendingLab("PGlite");
    const { fcm, log } = lab;
    const push = await lab.start();
    await lab.addDevices(devicesAt(offsets, 100, "fine"));
    await lab.addDevices(devicesAt([-60], 3, "broken"));
    // No report of a dead device can be stored, and this one is reported dead.
    const fault = await breakDatabase(lab, { table: "dead_reports" });
    const dead = fcm.play({ tokenPrefix: "broken-2", answer: "UNREGISTERED" });
    const id = await push.send({ utcOffsets: [-60, ...offsets] });

    const isGivenUp = async () => (await deadLetters(push)).length > 0;
    for (let tries = 1; !(await isGivenUp()); tries += 1) {
      await until("it has failed", async () => lab.errors() >= tries || (await isGivenUp()));
      await until("the others are sent", async () => (await push.progress(id)).sent === 100);
      lab.passMinute();
    }
    expect(await push.ended(id)).toMatchObject({
      ...{
        state: "COMPLETED",
        planned: 103,
        sent: 100,
        failed: 0,
        dropped: 0,
        deadLettered: 3,
        remaining: 0,
      },
    });
    const [letter, ...others] = await deadLetters(push);
    expect(others).toEqual([]);
    expect(letter).toMatchObject({ notificationId: id, provider: "fcm", utcOffset: -60, devices: 3 });
    expect(letter?.reason).toEqual(expect.any(String));
    // Ten tries, or the first one and ten more.
    expect([10, 11]).toContain(dead.played);
    const said = log.lines().filter(({ msg }) => String(msg).startsWith("A chunk became a dead letter"));
    expect(said).toMatchObject([{ level: "error", notificationId: id }]);

    dead.stop();
    await fault.mend();
    const path = { id: letter?.id ?? "" };
    expect((await push.call("replayDeadLetter", { as: push.as, path })).status).toBe(204);
    await until("it is sent", async () => (await push.progress(id)).sent === 103);
    expect(await push.ended(id)).toMatchObject({ state: "COMPLETED", deadLettered: 0, remaining: 0 });
    expect(await deadLetters(push)).toEqual([]);
    // What is repeated is the same message.
    expect(fcm.ledger.summary()).toMatchObject({ tokens: 103, tokensNotifiedTwice: 0 });
  });
});

describe.each(backends)("a chunk whose results cannot be stored for a while, on %s", (backend) => {
  it("is tried again without anybody's help", async () => {
    await using lab = await createSendingLab(backend);
    const push = await lab.start();
    await lab.addDevices(devicesAt([-60], 3, "broken"));
    const fault = await breakDatabase(lab, { table: "dead_reports" });
    lab.fcm.play({ tokenPrefix: "broken-2", answer: "UNREGISTERED" });
    const id = await push.send({ utcOffsets: [-60] });
    await until("it has failed", () => lab.errors() > 0);
    expect(await push.progress(id)).toMatchObject({ sent: 0, remaining: 3, deadLettered: 0 });
    await fault.mend();
    expect(await push.ended(id)).toMatchObject({ state: "COMPLETED", sent: 2, failed: 1, deadLettered: 0 });
    expect(await deadLetters(push)).toEqual([]);
  });
});
