/** A server is stopped in the middle of a send, as a deployment does it: nobody gets a message twice or too late. */
import { once } from "node:events";
import { sql } from "drizzle-orm";
import { describe, expect, it } from "vitest";
import type { Database } from "../../../src/platform/database/database.ts";
import type { PushProcess } from "../../support/push-server.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { lookAllTheTime, type Operator, operatorOf, until } from "./operator.ts";
import { createWorld, type World } from "./world.ts";

const devices = 3_000;
/** In three zones: three chunks, as large as chunks are. */
const audience = { devices, users: devices, offsets: [-480, 0, 480] };
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

/** The chunks that processes are sending. Each is named by its id and by how often it was taken: by who has it. */
async function sendingIn(db: Database): Promise<readonly string[]> {
  const sending = await rows<{ taken: string }>(
    db,
    sql`select id || '/' || attempt as taken from push.delivery_chunks where state = 'SENDING'`,
  );
  return sending.map(({ taken }) => taken);
}
const sendingOf = ({ read }: World) => read(sendingIn);

/**
 * Sends, and waits until so many chunks are being sent, with messages out and less than one chunk in all: none of them
 * is done.
 * @returns the notification's id, and these chunks
 */
async function inTheMiddle({ read, fcm: { ledger } }: World, operator: Operator, chunks: number) {
  let id = "";
  let sending: readonly string[] = [];
  await read(async (db) => {
    id = await operator.send();
    await until(`${chunks} chunks are being sent`, async () => {
      sending = await sendingIn(db);
      const { messages } = ledger.summary();
      if (messages > 800) throw new Error(`${messages} messages are out: the signal would come too late`);
      return messages > 100 && sending.length === chunks;
    });
  });
  return { id, sending };
}

/** Jobs that waited for a worker which was gone. */
async function jobsLost({ read }: World): Promise<number> {
  const found = await read((db) => rows(db, sql`select id::text from push_jobs.job where retry_count > 0`));
  return found.length;
}

describe.runIf(backends.includes("PostgreSQL"))("SIGTERM in the middle of a send", () => {
  it("leaves the rest to the other process at once", async () => {
    const world = await createWorld("PostgreSQL", { env, audience });
    const { ledger } = world.fcm;
    try {
      const stays = await world.start();
      const goes = await world.startBeside(stays);
      const operator = await operatorOf(stays);
      const { id, sending: before } = await inTheMiddle(world, operator, 2);
      const stopLooking = lookAllTheTime(operator, id);

      expect(await terminate(goes)).toEqual({ code: 0, inTime: true });
      expect(ledger.summary().messages).toBeLessThan(devices);
      // The other process may have two chunks by now, one of which waits for its last responses; but nobody has the one
      // of the process that went, which waits for no time-out.
      const after = await sendingOf(world);
      expect(before.filter((chunk) => after.includes(chunk)).length).toBeLessThanOrEqual(1);

      expect(await operator.ended(id)).toMatchObject({ state: "COMPLETED", sent: devices });
      expect(ledger.summary()).toMatchObject({ tokens: devices, messages: devices, repeats: 0 });
      expect(await sendingOf(world)).toEqual([]);
      expect(await jobsLost(world)).toBe(0);
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
      const id = await operator.send();
      await until("it sends", () => ledger.summary().messages > 100);

      expect(await terminate(first)).toEqual({ code: 0, inTime: true });
      expect(await sendingOf(world)).toEqual([]);

      world.fcm.stopPlaying();
      const again = await operatorOf(await world.start(first.env), operator.as);
      expect(await again.ended(id)).toMatchObject({ state: "COMPLETED", sent: devices });
      expect(ledger.summary()).toMatchObject({ tokens: devices, messages: devices, repeats: 0 });
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
      const { id } = await inTheMiddle(world, operator, 1);

      expect(await terminate(first)).toEqual({ code: 0, inTime: true });
      const { messages } = ledger.summary();
      expect(messages).toBeLessThan(devices);
      expect(await sendingOf(world)).toEqual([]);

      const next = await world.start(first.env);
      const again = await operatorOf(next, operator.as);
      expect(await again.ended(id)).toMatchObject({ state: "COMPLETED", sent: devices, recipients: devices });
      expect(ledger.summary()).toMatchObject({ tokens: devices, messages: devices, repeats: 0 });
      expect(await sendingOf(world)).toEqual([]);
      expect(await jobsLost(world)).toBe(0);
    } finally {
      await world.end();
    }
  });
});
