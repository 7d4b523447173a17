/** The janitor beside others: other processes' janitors, planning, readers and changes. Nobody is disturbed by it. */
import { sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { createDevices } from "../../src/push/devices/devices.ts";
import { createHistory } from "../../src/push/history/history.ts";
import { historyEntries, insertEntries } from "../support/history-rows.ts";
import { rows } from "../support/rows.ts";
import { backends } from "../support/servers.ts";
import { janitorOn, limit } from "./janitor-fixture.ts";

describe.runIf(backends.includes("PostgreSQL"))("the janitor beside others", () => {
  const { db, open, clock, round, column, count, device, notification } = janitorOn("PostgreSQL");

  test("planning is waited for only where a user goes, and never to remove entries", async () => {
    const other = await open();
    await notification(limit + 1, { viewedBy: { anna: true, boris: false } });
    await notification(1, { viewedBy: { anna: false, boris: false } });
    await other.db.transaction(async (tx) => {
      await tx.execute(sql`select pg_advisory_xact_lock_shared(hashtext('push.plan'))`);
      await round();
    });
    expect(await count("history_blocks")).toBe(1);
    expect(await column("user_id", "history_users")).toEqual(["anna", "boris"]);
  });

  test("while another process is at it, nothing is done twice or waited for", async () => {
    const other = await open();
    await device("expired", -1);
    await other.db.transaction(async (tx) => {
      await tx.execute(sql`select pg_advisory_xact_lock(hashtext('push.janitor'))`);
      await round();
      expect(await count("devices")).toBe(1);
    });
    await round();
    expect(await count("devices")).toBe(0);
  });

  test("a user whose last entry goes while a step of planning gives another one keeps the number", async () => {
    const other = await open();
    await notification(limit + 1, { viewedBy: { anna: false } });
    const young = await notification(1);
    let cleaned: Promise<void> | undefined;
    await other.db.transaction(async (tx) => {
      await tx.execute(sql`select pg_advisory_xact_lock_shared(hashtext('push.plan'))`);
      await insertEntries(tx, young, sql`values ('anna')`);
      cleaned = round();
      const waiting = sql`select 1 from pg_locks where locktype = 'advisory' and not granted
          and database = (select oid from pg_database where datname = current_database())`;
      await expect.poll(async () => (await rows(tx, waiting)).length).toBe(1);
    });
    await cleaned;
    expect(await column("notification_id", historyEntries)).toEqual([young]);
  });

  test("what somebody is working on is left for the next round", async () => {
    const other = await open();
    const id = await notification(limit + 1, { chunks: ["DEAD"], viewedBy: { anna: false } });
    await device("expired", -1);
    await other.db.transaction(async (tx) => {
      await tx.execute(sql`select 1 from push.history_blocks for update`);
      await tx.execute(sql`select 1 from push.devices for update`);
      await round();
      // As an entry of it is left.
      expect(await column("id", "notifications")).toEqual([id]);
      expect([await count("history_blocks"), await count("devices")]).toEqual([1, 1]);
    });
    await other.db.transaction(async (tx) => {
      await tx.execute(sql`select 1 from push.notifications for update`);
      await round();
      const left = ["history_blocks", "delivery_chunks", "notifications"] as const;
      expect(await Promise.all(left.map(count))).toEqual([0, 1, 1]);
    });
    await round();
    expect([await count("delivery_chunks"), await count("notifications")]).toEqual([0, 0]);
  });

  test("rounds of several processes beside renewals, removals and readers make nothing fail, and no renewed device goes", async () => {
    const other = await open();
    const providers = new Map([["outbox" as const, { tokenProblem: () => undefined }]]);
    const devices = createDevices({
      db: db(),
      clock: clock(),
      providers,
      defaultProvider: "outbox",
      maxPerUser: 20,
    });
    const history = createHistory({ db: db() });
    const newest = { page: 0, size: 100, sort: [] };
    for (let turn = 0; turn < 15; turn += 1) {
      for (const token of ["a", "b", "c", "d"]) await device(`${token}${turn}`, -1);
      for (let n = 0; n < 5; n += 1)
        await notification(limit + n, { viewedBy: { anna: false, boris: false } });
      const expiration = new Date(clock().now() + 60_000);
      await Promise.all([
        round(),
        round(other.db),
        history.page("anna", newest, true),
        devices.save("anna", { token: `a${turn}`, expiration, utcOffset: undefined }),
        devices.save("boris", { token: `b${turn}`, expiration, utcOffset: undefined }),
        devices.remove("anna", `c${turn}`),
        history.page("anna", { ...newest, sort: ["id,asc"] }, true),
        round(other.db),
      ]);
      await round();
      expect((await column("token", "devices")).filter((token) => token.endsWith(String(turn)))).toEqual(
        expect.arrayContaining([`a${turn}`, `b${turn}`]),
      );
    }
    await round();
    expect(await count("devices")).toBe(30);
    for (const table of ["history_blocks", "history_views", "history_users"] as const) {
      expect(await count(table), table).toBe(0);
    }
  });
});
