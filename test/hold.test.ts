/** A back-up that was made in the middle of a send is restored: nothing is sent until an operator says so. */
import { join } from "node:path";
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, test } from "vitest";
import { openDatabase } from "../src/platform/database/open.ts";
import { pushMigrations } from "../src/push/database.ts";
import { operatorOf, until } from "./push/end-to-end/operator.ts";
import { createWorld, type World } from "./push/end-to-end/world.ts";
import { createTestDatabase, postgresSettings, type TestDatabase } from "./support/backends.ts";
import { canBackUp, dump, restore } from "./support/postgresql/back-up.ts";
import { startProgram } from "./support/program.ts";
import { rows } from "./support/rows.ts";
import { emptyOffset } from "./support/send-audience.ts";
import { backends, databaseEnvironment } from "./support/servers.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";

/** So many that the first send lasts for half a minute. */
const devices = 3_000;

describe.runIf(backends.includes("PostgreSQL") && canBackUp)("a back-up of the middle of a send", () => {
  const cleanup = suiteCleanup();
  let world: World;
  let restored: TestDatabase;
  /** All of it was unfinished in the back-up. The first one was recalled since then. */
  let recalled: string;
  let other: string;
  let paused: string;
  const keys = { before: "before-the-back-up", since: "since-the-back-up" };
  const toNobody = { utcOffsets: [emptyOffset] };
  const sentWith: Record<string, string> = {};

  beforeAll(async () => {
    const audience = { devices, users: 600, offsets: [0, 60] };
    world = await createWorld("PostgreSQL", { env: { PUSH_MAX_PER_SECOND: "100" }, audience });
    cleanup.defer(() => world.end());
    restored = await createTestDatabase();
    cleanup.defer(() => restored.drop());
    const server = await world.start();
    const operator = await operatorOf(world.address);
    const sendWith = (key: string) => operator.send(toNobody, { "Idempotency-Key": key });
    paused = await operator.send();
    await operator.pause(paused);
    sentWith["before"] = await sendWith(keys.before);
    recalled = await operator.send({ title: "Sael" });
    other = await operator.send({ title: "Sale" });
    await until("both are being sent", async () => {
      const both = await Promise.all([recalled, other].map(operator.progress));
      return both.every(({ sent }) => sent > 0);
    });
    const file = join(server.env["DATA_DIR"] ?? "", "gatepost.dump");
    dump(server.env["DB_NAME"] ?? "", file);
    await operator.call("recallNotification", { as: operator.as, path: { id: recalled } });
    // By this the page has an operator find out what has ended since the back-up.
    const ended = new RegExp(`"push.notification.completed.v1","subject":"${recalled}".*"cancelled":true`);
    await until("its end is in the log", () => ended.test(server.logs()));
    sentWith["since"] = await sendWith(keys.since);
    await server.kill();
    expect(restore(restored, file)).toMatch(/until[^a-z]*\d{4}-\d\d-\d\d /);
    world.fcm.ledger.clear();
  });

  async function run(...args: string[]) {
    const program = startProgram([process.execPath, "src/hold.ts", ...args], databaseEnvironment(restored));
    return { code: await program.ended(), stdout: program.stdout(), stderr: program.stderr() };
  }

  async function hold(...args: string[]): Promise<string> {
    const { code, stdout, stderr } = await run(...args);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    return stdout;
  }

  /** Waits until the processes have met all that is left of what was unfinished, and what a dead one had taken. */
  async function allIsMet(): Promise<void> {
    const { db, close } = await openDatabase(postgresSettings(restored), pushMigrations);
    try {
      await until("all chunks are parked", async () => {
        const states = await rows<{ state: string }>(
          db,
          sql`select distinct state from push.delivery_chunks c where state <> 'DONE'`,
        );
        return states.length === 1 && states[0]?.state === "PARKED";
      });
    } finally {
      await close();
    }
  }

  test("is held only by --yes, and by nothing that contradicts itself", async () => {
    for (const args of [
      ["--yes", "--resume", "all"],
      ["--resume", recalled, "--cancel", recalled],
    ])
      expect(await run(...args)).toEqual({
        code: 2,
        stdout: "",
        stderr: expect.stringMatching(
          /^--yes, --resume and --cancel exclude each other\. Nothing was done\./,
        ),
      });
    for (const listed of [await hold(), await hold()]) {
      expect(listed).toContain("Nothing is held in ");
      expect(listed).toContain("Not finished, and neither held nor paused: 2.");
    }
  });

  test("is held by one command, listed, and resumed or cancelled; the figures are those of what was sent", async () => {
    const listed = await hold("--yes");
    for (const text of [recalled, other, '"Sael"', '"Sale"', "Held in ", ": 2. ", "paused: 0."])
      expect(listed).toContain(text);
    expect(listed).not.toContain(paused);
    expect(await hold()).toBe(listed);

    await world.start({ ...databaseEnvironment(restored), PUSH_MAX_PER_SECOND: "5000" });
    const operator = await operatorOf(world.address);
    await allIsMet();
    expect(world.fcm.ledger.summary().messages).toBe(0);
    const before = await operator.progress(recalled);
    expect(before).toMatchObject({
      state: "PAUSED",
      recalledAt: null,
      notice: expect.stringContaining("held"),
    });
    const { remaining } = await operator.progress(other);

    expect(await hold("--cancel", recalled)).toContain(": 1. ");
    expect(await hold("--resume", "all")).toContain("Nothing is held in ");
    expect(await operator.ended(other)).toMatchObject({
      ...{ state: "COMPLETED", planned: devices, sent: devices, remaining: 0, dropped: 0 },
    });
    expect(await operator.ended(recalled)).toMatchObject({
      ...{ state: "CANCELLED", planned: devices, sent: before.sent, dropped: devices - before.sent },
    });
    // Of the one that was paused before nothing was sent either.
    expect(world.fcm.ledger.summary()).toMatchObject({ messages: remaining, repeats: 0 });
    expect(await operator.progress(paused)).toMatchObject({ state: "PAUSED" });
    expect((await operator.progress(paused)).notice).toBeUndefined();

    // What the page says of keys: those since the back-up are unknown.
    const again = (key: string) => operator.send(toNobody, { "Idempotency-Key": key });
    expect(await again(keys.before)).toBe(sentWith["before"]);
    expect(await again(keys.since)).not.toBe(sentWith["since"]);
  });

  test("what is not held is changed by nothing, and said", async () => {
    const unknown = "019a9f00-0000-7000-8000-000000000000";
    for (const args of [
      ["--resume", unknown],
      ["--resume", paused],
      ["--cancel", paused],
    ]) {
      const stderr = `${args[1]} is not held. Nothing of it was changed.\n`;
      expect(await run(...args)).toMatchObject({ code: 1, stderr });
    }
  });
});
