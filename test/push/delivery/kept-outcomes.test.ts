/** What became of each device of a send to named users: written with the results, for as long as the user is there. */
import { sql } from "drizzle-orm";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { forgetUser } from "../../../src/push/devices/remove-devices.ts";
import { cleanUp } from "../../../src/push/janitor.ts";
import { setAside } from "../../../src/push/notifications/follow-chunks.ts";
import { createRecipients } from "../../../src/push/notifications/recipients.ts";
import type { Outcome } from "../../../src/push/providers/provider.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import {
  createDeliveryTest,
  type DeliveryTest,
  type Planned,
  recordingProvider,
} from "./delivery-fixture.ts";

const page = { page: 0, size: 20 };

describe.each(backends)("outcomes on %s", (backend) => {
  let lab: DeliveryTest;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createDeliveryTest(backend);
    cleanup.defer(() => lab.close());
  });
  afterEach(async () => {
    await lab.stopWorkers();
    await lab.clearState();
    await lab.db.execute(sql`delete from push.devices`);
  });

  /** Names the users of what was planned: user-0, user-1 … */
  async function named(users: number, said = users): Promise<Planned> {
    const planned = await lab.plan({ devices: users, chunkSize: 2 });
    const id = sql`${planned.notificationId}::uuid`;
    await lab.db.execute(sql`
      update push.notifications set audience_kind = 'USERS', utc_offsets = null,
        audience = jsonb_build_object('users', ${said}::int) where id = ${id}`);
    await lab.db.execute(sql`
      insert into push.notification_users (notification_id, position, user_id)
      select ${id}, n, 'user-' || n - 1 from generate_series(1, ${users}::int) as n`);
    return planned;
  }
  const outcomesOf = async ({ notificationId }: Planned) => {
    const found = await createRecipients(lab.db)(notificationId, page);
    return found.content.map(({ user, outcome, reason }) => [user, outcome, reason]);
  };
  /** Sends what was planned, with these outcomes by the number of the device. */
  async function send(planned: Planned, outcomes: readonly Outcome[]): Promise<void> {
    const provider = recordingProvider();
    const byToken = new Map(planned.tokens.map((token, index) => [token, outcomes[index]]));
    provider.answer = ({ token }) => byToken.get(token) ?? { kind: "sent" };
    lab.startWorker({ providers: [provider] });
    await lab.until(planned, ["DONE", "DEAD"]);
    await lab.stopWorkers();
  }

  test("name each device's, with the provider's reason, and what is replayed takes the place of the first", async () => {
    const planned = await named(4);
    await send(planned, [
      { kind: "sent" },
      { kind: "failed", reason: "too large" },
      { kind: "dead", reason: "unregistered" },
      { kind: "blocked", reason: "no key" },
    ]);
    // The users of the fixture's devices begin with the second.
    expect(await outcomesOf(planned)).toEqual([
      ["user-0", "DEAD_LETTERED", "no key"],
      ["user-1", "SENT", null],
      ["user-2", "FAILED", "too large"],
      ["user-3", "FAILED", "unregistered"],
    ]);
    await lab.db.execute(sql`
      update push.delivery_chunks set state = 'READY', retries = 0 where state = 'DEAD'`);
    await send(planned, []);
    expect((await outcomesOf(planned))[0]).toEqual(["user-0", "SENT", null]);
    const paged = await createRecipients(lab.db)(planned.notificationId, { page: 1, size: 3 });
    expect(paged).toMatchObject({ content: [{ user: "user-3", provider: "fcm" }], totalElements: 4 });
  });

  test("are not kept of more than 1,000 users, nor of other audiences", async () => {
    const [many, others] = [await named(2, 1_001), await lab.plan({ devices: 2 })];
    await send(many, []);
    await send(others, []);
    expect([await outcomesOf(many), await outcomesOf(others)]).toEqual([[], []]);
    await expect(createRecipients(lab.db)("0197aaaa-0000-7000-8000-000000000000", page)).rejects.toThrow(
      "There is no notification",
    );
  });

  test("are DROPPED of what is cancelled", async () => {
    const planned = await named(3);
    await lab.setState(planned, "CANCELLED");
    const { notificationId, chunkIds } = planned;
    const attempt = "0197aaaa-0000-4000-8000-000000000000";
    await setAside(lab.db, { id: chunkIds[0] ?? 0, attempt, notificationId });
    expect(await outcomesOf(planned)).toEqual([0, 1, 2].map((n) => [`user-${n}`, "DROPPED", null]));
  });

  test("go with their user, and who is forgotten meanwhile gets none", async () => {
    const planned = await named(3);
    const forget = (user: string) => lab.db.transaction((tx) => forgetUser(tx, user, new Date("2100-01-01")));
    const provider = recordingProvider();
    const { promise: gate, resolve: open } = Promise.withResolvers<void>();
    provider.answer = async () => {
      await gate;
      return { kind: "sent" };
    };
    lab.startWorker({ providers: [provider] });
    await expect.poll(() => provider.sent.length).toBe(3);
    await forget("user-0");
    open();
    await lab.until(planned, ["DONE"]);
    expect(await outcomesOf(planned)).toEqual([1, 2].map((n) => [`user-${n}`, "SENT", null]));
    await forget("user-2");
    expect(await outcomesOf(planned)).toEqual([["user-1", "SENT", null]]);
  });

  test("are none, and nothing is sent, of a user whose values went with him and who has come back", async () => {
    const planned = await named(2);
    await lab.db.execute(sql`update push.notification_users set variables = '{"name": "Ann"}'`);
    await lab.db.execute(sql`update push.devices set renewed_at = now() + interval '2 minutes'`);
    await lab.db.transaction((tx) => forgetUser(tx, "user-0", new Date()));
    await send(planned, []);
    expect(await outcomesOf(planned)).toEqual([["user-1", "SENT", null]]);
    expect(await lab.chunks(planned)).toMatchObject([{ sent: 1, dropped: 1 }]);
  });

  test("are removed by the janitor once their notification is too old", async () => {
    await send(await named(2), []);
    const count = async () =>
      (await rows<{ n: number }>(lab.db, sql`select count(*)::int as n from push.message_outcomes`))[0]?.n;
    const all = await count();
    const round = (outcomeRetentionDays: number) =>
      cleanUp({ db: lab.db, historyRetentionDays: 180, outcomeRetentionDays });
    await round(1);
    expect(await count()).toBe(all);
    await round(-1);
    expect(await count()).toBe(0);
  });
});
