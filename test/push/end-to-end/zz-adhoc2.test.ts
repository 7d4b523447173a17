import { setTimeout as delay } from "node:timers/promises";
import { it } from "vitest";
import { operatorOf } from "./operator.ts";
import { createWorld } from "./world.ts";
it("one percent", { timeout: 120_000 }, async () => {
  const devices = 5_000;
  const world = await createWorld("PostgreSQL", { env: { PUSH_MAX_PER_SECOND: "1000", LOGGING_LEVEL: "warn" }, audience: { devices, users: devices } });
  try {
    const server = await world.start();
    const operator = await operatorOf(server);
    world.fcm.play({ share: 0.01, answer: "UNAVAILABLE" });
    const id = await operator.send();
    for (let n = 0; n < 8; n += 1) {
      await delay(7000);
      const { breakdown, ...p } = await operator.progress(id);
      process.stderr.write(JSON.stringify({ n, state: p.state, sent: p.sent, remaining: p.remaining, dead: p.deadLettered, answers: world.fcm.ledger.summary().answers }) + "\n");
    }
    process.stderr.write(server.logs().slice(-1500));
  } finally { await world.end(); }
});
