/** A server is stopped in the middle of a send, as a deployment does it: nobody gets a message twice or too late. */
import { once } from "node:events";
import { describe, expect, it } from "vitest";
import type { PushProcess } from "../../support/push-server.ts";
import { backends } from "../../support/servers.ts";
import { lookAllTheTime, type Operator, operatorOf, until } from "./operator.ts";
import { createWorld, type World } from "./world.ts";

const devices = 3_000;
/** In three zones: three chunks, as large as chunks are. */
const offsets = [-480, 0, 480];
const audience = { devices, users: devices, offsets };
/** What is sent to one zone is in the hands of one process, and nothing else is left to begin with. */
const [zone = 0] = offsets;
const inZone = devices / offsets.length;
/** Messages a second: a process that has taken a chunk is in the middle of it for seconds. */
const env = { PUSH_MAX_PER_SECOND: "300" };
/** Milliseconds that stopping may take: the grace that a process has for it by its settings. */
const graceMs = 20_000;

/** SIGTERM. @returns how it ended, and how long that took */
async function terminate({ child }: PushProcess): Promise<{ code: unknown; inTime: boolean }> {
  const began = performance.now();
  const exited = once(child, "exit");
  child.kill("SIGTERM");
  const [code] = await exited;
  return { code, inTime: performance.now() - began < graceMs };
}

/** Milliseconds within which work is gone on with that waits for no time-out, on a busy machine. */
const soonMs = 7_000;

/** Sends, and waits until that is in the middle. @returns the notification's id */
async function inTheMiddle(
  { fcm: { ledger } }: World,
  operator: Operator,
  utcOffsets = offsets,
): Promise<string> {
  const id = await operator.send({ utcOffsets });
  await until("it sends", () => ledger.summary().messages > 100);
  return id;
}

/** Milliseconds until another message has come. */
async function untilNextMessage({ fcm: { ledger } }: World): Promise<number> {
  const { messages } = ledger.summary();
  const began = performance.now();
  await until("it sends again", () => ledger.summary().messages > messages);
  return performance.now() - began;
}

describe.runIf(backends.includes("PostgreSQL"))("SIGTERM in the middle of a send", () => {
  it("leaves the rest to the other process at once", async () => {
    const world = await createWorld("PostgreSQL", { env, audience });
    const { ledger } = world.fcm;
    try {
      const stays = await world.start();
      const goes = await world.startBeside(stays);
      const operator = await operatorOf(stays);
      const id = await inTheMiddle(world, operator);
      const stopLooking = lookAllTheTime(operator, id);

      expect(await terminate(goes)).toEqual({ code: 0, inTime: true });
      expect(ledger.summary().messages).toBeLessThan(devices);
      expect(await untilNextMessage(world)).toBeLessThan(soonMs);

      expect(await operator.ended(id)).toMatchObject({ state: "COMPLETED", sent: devices });
      expect(ledger.summary()).toMatchObject({ tokens: devices, messages: devices, repeats: 0 });
      expect((await stopLooking()).problems).toEqual([]);
    } finally {
      await world.end();
    }
  });

  it("waits for the answers of a slow provider, and no longer", async () => {
    const world = await createWorld("PostgreSQL", { env, audience });
    const { ledger } = world.fcm;
    try {
      const first = await world.start();
      const operator = await operatorOf(first);
      // Each message is taken at once, and that is known three seconds later.
      world.fcm.play({ delayMs: 3_000 });
      const id = await inTheMiddle(world, operator, [zone]);

      expect(await terminate(first)).toEqual({ code: 0, inTime: true });

      world.fcm.stopPlaying();
      const again = await operatorOf(await world.start(first.env), operator.as);
      expect(await untilNextMessage(world)).toBeLessThan(soonMs);
      expect(await again.ended(id)).toMatchObject({ state: "COMPLETED", sent: inZone });
      expect(ledger.summary()).toMatchObject({ tokens: inZone, messages: inZone, repeats: 0 });
    } finally {
      await world.end();
    }
  });

  it("leaves the rest to the next process, where there is no other", async () => {
    const world = await createWorld("PostgreSQL", { env, audience });
    const { ledger } = world.fcm;
    try {
      const first = await world.start();
      const operator = await operatorOf(first);
      const id = await inTheMiddle(world, operator, [zone]);

      expect(await terminate(first)).toEqual({ code: 0, inTime: true });
      expect(ledger.summary().messages).toBeLessThan(inZone);

      const next = await world.start(first.env);
      expect(await untilNextMessage(world)).toBeLessThan(soonMs);
      const again = await operatorOf(next, operator.as);
      expect(await again.ended(id)).toMatchObject({ state: "COMPLETED", sent: inZone, recipients: inZone });
      expect(ledger.summary()).toMatchObject({ tokens: inZone, messages: inZone, repeats: 0 });
    } finally {
      await world.end();
    }
  });
});
