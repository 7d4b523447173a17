/** Taking chunks and storing outcomes where PostgreSQL's statistics say that tables are empty, which they often are. */
import { sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import type { Database } from "../../../src/platform/database/database.ts";
import { Processes } from "../../../src/push/queue/processes.ts";
import { storeOutcomes } from "../../../src/push/queue/store-outcomes.ts";
import { ChunkTaker, isSendable } from "../../../src/push/queue/take-chunks.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { takenForEmpty } from "../../support/taken-for-empty.ts";
import { createLab } from "../notifications/notification-lab.ts";

const cleanup = suiteCleanup();

/** Other users that the notification names, and other notifications. */
const others = 2_000;
const users = 20;

/** The rows of a table that this transaction has read. */
async function rowsRead(tx: Database, table: string): Promise<number> {
  const [found] = await rows<{ read: number }>(
    tx,
    sql`select (seq_tup_read + idx_tup_fetch)::int as read from pg_stat_xact_user_tables where relname = ${table}`,
  );
  return found?.read ?? Number.NaN;
}

describe.runIf(backends.includes("PostgreSQL"))("where PostgreSQL takes tables for empty", () => {
  test("a take reads its own notifications and users, and so do the outcomes of its chunk", async () => {
    const lab = await createLab("PostgreSQL");
    cleanup.defer(() => lab.drop());
    const { db, log } = lab;
    await lab.addDevices(Array.from({ length: users }, (_, n) => ({ userId: `user-${n}` })));
    const id = await lab.accept();
    await lab.plan();
    await db.execute(sql`
      update push.notifications set audience_kind = 'USERS', utc_offsets = null, audience = '{"users": 20}'`);
    await takenForEmpty(
      db,
      "push.notification_users",
      sql`insert into push.notification_users (notification_id, position, user_id)
        select ${id}::uuid, n + 1, 'user-' || n from generate_series(0, ${others}::int) as n`,
    );
    await db.execute(sql`
      insert into push.notifications (id, title, message, utc_offsets, state, accepted_at, expires_at, completed_at)
      select gen_random_uuid(), '', '', '{0}', 'COMPLETED', now(), now(), now()
      from generate_series(1, ${others}::int)`);
    const processes = new Processes({ db, leases: db, logger: log.logger, released: () => undefined });
    await processes.id();
    await db.transaction(async (tx) => {
      const [chunk] = await new ChunkTaker(tx, processes, "outbox").take(100, { chunks: 1, retries: 1 }, []);
      if (!chunk || !isSendable(chunk)) return expect.unreachable("no chunk was taken");
      const outcomes = chunk.devices.map(({ id: deviceId, userId }) => ({
        ...{ deviceId, userId, outcome: "SENT" as const, reason: null },
      }));
      expect(outcomes).toHaveLength(users);
      await storeOutcomes(tx, { notificationId: id, provider: "outbox" }, outcomes);
      expect(await rowsRead(tx, "notifications")).toBeLessThan(10);
      expect(await rowsRead(tx, "notification_users")).toBeLessThan(10 * users);
    });
    await processes.leave();
  });
});
