/** Two processes that live: neither takes from the other what it holds, and each gets what the other leaves. */
import { setTimeout as pause } from "node:timers/promises";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { PushProcess } from "../../support/push-server.ts";
import { worldOffsets } from "../../support/send-audience.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { isRunning } from "../end-to-end/world.ts";
import {
  type Deployment,
  deploy,
  deviceNames,
  freeze,
  longestGap,
  messagesOf,
  missed,
  repeated,
  sendBy,
  startIssuer,
  terminate,
} from "./processes-fixture.ts";

/** Zones of few devices, and zones of many. */
const small = worldOffsets.slice(0, 20);
const large = worldOffsets.slice(20, 22);
const offsets = [...small, ...large.flatMap((zone) => Array.from({ length: 10 }, () => zone))];
const devices = 20 * offsets.length;
const audience = { devices, users: devices, offsets };
/** The devices of these zones. */
const devicesAt = (zones: readonly number[]): string[] =>
  deviceNames(1, devices).filter((_, index) => zones.includes(offsets[(index + 1) % offsets.length] ?? 0));

/** Messages a second: a send to a zone of many devices takes two seconds. */
const rate = 100;
/** Milliseconds in which nobody judges a process dead. */
const shortMs = 4_000;
/** Milliseconds without a message from which on work has waited until its process was judged dead. */
const longMs = 7_000;

describe.runIf(backends.includes("PostgreSQL"))("of two processes", { timeout: 200_000 }, () => {
  let deployment: Deployment;
  let one: PushProcess;
  let other: PushProcess;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const issuer = await startIssuer();
    cleanup.defer(() => issuer.stop());
    deployment = await deploy(issuer, { audience, env: { PUSH_MAX_PER_SECOND: String(rate) } });
    cleanup.defer(() => deployment.end());
    other = await deployment.start();
    one = await deployment.start();
  });
  beforeEach(async () => {
    deployment.fcm.stopPlaying();
    deployment.fcm.ledger.clear();
    if (!isRunning(one.child)) one = await deployment.start();
  });

  /** Sends to the zone, and waits until one process is in the middle of it and the other has had no part in it. */
  function takenByOne(zone: number): Promise<string> {
    // There are always messages in flight.
    deployment.fcm.play({ delayMs: 1_000 });
    return sendBy(deployment, one, other, { zone, messages: 50 });
  }

  /** Waits until all devices of the zones have been sent to, as the operator of the other process sees it. */
  async function expectAllSent(id: string, zones: readonly number[]): Promise<void> {
    const operator = await deployment.at(other);
    const names = devicesAt(zones);
    expect(await operator.ended(id, 100)).toMatchObject({
      ...{ state: "COMPLETED", planned: names.length, sent: names.length },
      ...{ failed: 0, dropped: 0, deadLettered: 0, remaining: 0 },
    });
    expect(missed(deployment.fcm.ledger, names)).toEqual([]);
    expect(deployment.fcm.ledger.summary()).toMatchObject({ tokens: names.length, tokensNotifiedTwice: 0 });
  }

  /** Sends to the zones of few devices. @returns how many of the messages each process got a response to */
  async function sendBySmallZones(): Promise<readonly number[]> {
    const both = [one, other];
    const before = await Promise.all(both.map(messagesOf));
    const id = await (await deployment.at(one)).send({ utcOffsets: [...small] });
    await expectAllSent(id, small);
    const after = await Promise.all(both.map(messagesOf));
    return after.map((count, index) => count - (before[index] ?? 0));
  }

  test("both take part, and no device is sent to by both", async () => {
    deployment.fcm.play({ delayMs: 300 });
    const parts = await sendBySmallZones();
    expect(parts.reduce((sum, part) => sum + part)).toBe(devicesAt(small).length);
    for (const part of parts) expect(part).toBeGreaterThan(0);
    expect(repeated(deployment.fcm.ledger)).toEqual([]);
  });

  test("one that is stopped hands back what it holds, and the other goes on at once", async () => {
    const [zone = 0] = large;
    const before = await messagesOf(other);
    const id = await takenByOne(zone);
    await terminate(one);
    expect(deployment.fcm.ledger.summary().messages).toBeLessThan(devicesAt([zone]).length);
    await expectAllSent(id, [zone]);
    expect(await messagesOf(other)).toBeGreaterThan(before);
    expect(longestGap(deployment.fcm.ledger)).toBeLessThan(longMs);
    expect(repeated(deployment.fcm.ledger)).toEqual([]);
  });

  test("one that is frozen for moments keeps what it holds", async () => {
    const [, zone = 0] = large;
    const id = await takenByOne(zone);
    const thaw = freeze(one);
    await pause(shortMs);
    thaw();
    await expectAllSent(id, [zone]);
    expect(longestGap(deployment.fcm.ledger)).toBeGreaterThan(shortMs / 2);
    expect(repeated(deployment.fcm.ledger)).toEqual([]);
  });
});
