/** A send that is paused and resumed in quick succession, in a fleet: every job of a chunk that is in the air is harmless. */
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { backends } from "../../support/servers.ts";
import { lookAllTheTime, operatorOf, until } from "./operator.ts";
import { createWorld } from "./world.ts";

const devices = 4_000;

describe.runIf(backends.includes("PostgreSQL"))("a send of two processes", () => {
  it("that is paused and resumed again and again repeats nothing", async () => {
    const world = await createWorld("PostgreSQL", {
      env: { PUSH_MAX_PER_SECOND: "1000" },
      audience: { devices, users: devices },
    });
    const { ledger } = world.fcm;
    try {
      const server = await world.start();
      await world.startBeside(server);
      const operator = await operatorOf(server);
      const id = await operator.send();
      const stopLooking = lookAllTheTime(operator, id);
      for (let round = 1; round <= 5; round += 1) {
        await until("a further part is sent", () => ledger.summary().messages > round * 300);
        await operator.pause(id);
        if (round % 2 === 0) await delay(700);
        await operator.resume(id);
      }
      expect(ledger.summary().messages).toBeLessThan(devices);
      expect(await operator.ended(id)).toMatchObject({ state: "COMPLETED", sent: devices });
      expect(ledger.summary()).toMatchObject({ tokens: devices, messages: devices, repeats: 0 });
      expect((await stopLooking()).problems).toEqual([]);
    } finally {
      await world.end();
    }
  });
});
