/** The test trigger, which anybody may pull: it is harmless, however often that happens. */
import { describe, expect, it } from "vitest";
import { backends } from "../../support/servers.ts";
import { apiOf, operatorOf } from "./operator.ts";
import { createWorld } from "./world.ts";

/** Of the audience's; each of them has five devices in as many zones. */
const testers = ["user-3", "user-7"];
const audience = { devices: 500, users: 100 };
const perTester = 5;

describe.each(backends)("on %s", (backend) => {
  it("1,000 calls without a token start one run, for the configured users only", async () => {
    const env = { TEST_NOTIFICATION_USER_IDS: [...testers, "u-nobody"].join(",") };
    const world = await createWorld(backend, { env, audience });
    try {
      const server = await world.start();
      const others = backend === "PGlite" ? [] : [await world.startBeside(server)];
      const apis = [server, ...others].map(apiOf);
      const statuses = new Set<number>();
      for (let round = 0; round < 10; round += 1) {
        const calls = Array.from({ length: 100 }, (_, n) =>
          apis[n % apis.length]?.call("startTestNotifications"),
        );
        for (const answer of await Promise.all(calls)) statuses.add(answer?.status ?? 0);
      }
      expect([...statuses]).toEqual([202]);

      const operator = await operatorOf(server);
      const { totalElements, content } = await operator.list();
      expect(totalElements).toBe(1);
      const [run] = content;
      const planned = testers.length * perTester;
      expect(await operator.ended(run?.id ?? "")).toMatchObject({
        ...{ test: true, state: "COMPLETED", recipients: testers.length, planned, sent: planned },
      });
      // And no further one, now that it has ended.
      for (const api of apis) expect((await api.call("startTestNotifications")).status).toBe(202);
      expect((await operator.list()).totalElements).toBe(1);

      const { ledger } = world.fcm;
      expect(ledger.summary()).toMatchObject({ tokens: planned, messages: planned });
      const numbers = ledger
        .tokens()
        .map(({ token }) => Number(token.replace(/^device-/, "")) % audience.users);
      expect(new Set(numbers)).toEqual(new Set([3, 7]));
    } finally {
      await world.end();
    }
  });
});
