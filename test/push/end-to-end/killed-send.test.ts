/**
 * The server is killed, again and again, while it plans and sends. Every device gets the notification; what was in
 * flight is repeated, as the same message; the figures add up whenever somebody looks.
 *
 *   TEST_KILLS=10 TEST_DEVICES=100000   the long form, which prints what it measured
 */
import { setTimeout as pause } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import type { PushProcess } from "../../support/push-server.ts";
import { historyOf } from "../../support/send-audience.ts";
import { backends } from "../../support/servers.ts";
import { lookAllTheTime, operatorOf, until } from "./operator.ts";
import { createWorld, type World } from "./world.ts";

const kills = Number(process.env["TEST_KILLS"] ?? 2);
const devices = Number(process.env["TEST_DEVICES"] ?? 10_000);
const users = Math.ceil(devices * 0.4);
const isLong = process.env["TEST_KILLS"] !== undefined;

/** Messages a second: slow enough for each kill to come while there is something left to send. */
const pace = 2_500;
/** Milliseconds of work within which each kill comes, at random. */
const windowMs = (devices / pace / (kills + 1)) * 1000;
/** What one process has in hand at most, and a kill may repeat. */
const chunkSize = 1_000;

const print = (figures: object) => process.stderr.write(`${JSON.stringify(figures)}\n`);

interface Kill {
  readonly at: number;
  /** Accepted so far. */
  readonly tokens: number;
  readyAfterMs: number;
  flowsAfterMs: number;
}

async function killAndRestart(
  world: World,
  server: PushProcess,
): Promise<{ server: PushProcess; kill: Kill }> {
  await pause(Math.random() * windowMs);
  await server.kill();
  const at = Date.now();
  const { tokens } = world.fcm.ledger.summary();
  const kill: Kill = { at, tokens, readyAfterMs: 0, flowsAfterMs: 0 };
  const before = world.fcm.ledger.summary().messages;
  const flowing = until("messages flow again", () => world.fcm.ledger.summary().messages > before).then(
    () => {
      kill.flowsAfterMs = Date.now() - at;
    },
  );
  const next = await world.start(server.env);
  kill.readyAfterMs = Date.now() - at;
  await flowing;
  return { server: next, kill };
}

describe.runIf(backends.includes("PostgreSQL"))("a send whose server is killed", () => {
  it(`reaches each of ${devices} devices, through ${kills} kills, and repeats no more than was in flight`, {
    timeout: 120_000 + kills * 60_000,
  }, async () => {
    const world = await createWorld("PostgreSQL", {
      env: { PUSH_MAX_PER_SECOND: String(pace) },
      audience: { devices, users },
    });
    try {
      let server = await world.start();
      const operator = await operatorOf(world.address);
      // The answers take their time, so that there is always something in flight.
      world.fcm.play({ delayMs: 20 });
      const id = await operator.send();
      const stopLooking = lookAllTheTime(operator, id);
      const all: Kill[] = [];
      for (let count = 0; count < kills; count += 1) {
        const killed = await killAndRestart(world, server);
        server = killed.server;
        all.push(killed.kill);
      }
      const lastKill = Date.now();
      const ended = await operator.ended(id, 120 + kills * 10);
      const looks = await stopLooking();

      const { tokens, messages, repeats, tokensNotifiedTwice } = world.fcm.ledger.summary();
      if (isLong) {
        for (const { at: _, ...figures } of all) print(figures);
        const endedAfterLastKillMs = Date.now() - lastKill;
        print({ tokens, messages, repeats, looks: looks.count, states: looks.states, endedAfterLastKillMs });
      }
      // No kill came too late to disturb anything.
      expect(all.every((kill) => kill.tokens < devices)).toBe(true);
      const missed = Array.from({ length: devices }, (_, n) => `device-${n + 1}`).filter(
        (token) => !world.fcm.ledger.token(token),
      );
      expect(missed).toEqual([]);
      expect({ tokens, tokensNotifiedTwice }).toEqual({ tokens: devices, tokensNotifiedTwice: 0 });
      // Every repeat is the same message again.
      expect(messages).toBe(tokens + repeats);
      expect(repeats).toBeLessThanOrEqual(kills * chunkSize);
      expect(ended).toMatchObject({
        ...{ state: "COMPLETED", recipients: users, planned: devices, sent: devices },
        ...{ failed: 0, dropped: 0, deadLettered: 0, remaining: 0 },
      });
      expect(await world.read((db) => historyOf(db, id))).toEqual({ rows: users, users });
      expect(looks.problems).toEqual([]);
      expect(looks.count).toBeGreaterThan(kills);
    } finally {
      await world.end();
    }
  });
});
