/** An event that comes twice, or twice at once, acts once; one whose effect failed acts when it comes again. */
import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, test } from "vitest";
import type { Database, OpenDatabase } from "../../../src/platform/database/database.ts";
import { handleOnce } from "../../../src/platform/messaging/inbox.ts";
import { pushMigrations } from "../../../src/push/database.ts";
import { inbox } from "../../../src/push/schema.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { createMigratedServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

describe.each(backends)("an inbox on %s", (backend) => {
  let database: OpenDatabase;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const own = await createMigratedServiceDatabase(backend, pushMigrations);
    cleanup.defer(() => own.drop());
    database = await own.open();
  });

  /** Its effect is a row in another table. */
  const leaveTrace = (id: string) => (tx: Database) =>
    tx
      .execute(sql`
        insert into push.idempotency_keys (key_hash, request_hash, notification_id, expires_at)
        select sha256(convert_to(${id} || count(*), 'UTF8')), ''::bytea, ${id}::uuid, now() from push.idempotency_keys`)
      .then(() => undefined);
  async function traces(id: string): Promise<number> {
    const [found] = await rows<{ n: number }>(
      database.db,
      sql`select count(*)::int as n from push.idempotency_keys where notification_id = ${id}::uuid`,
    );
    return Number(found?.n);
  }

  test("acts once for an event that comes twice, and twice at once", async () => {
    const id = randomUUID();
    await Promise.all([1, 2, 3].map(() => handleOnce(database.db, inbox, id, leaveTrace(id))));
    await handleOnce(database.db, inbox, id, leaveTrace(id));
    expect(await traces(id)).toBe(1);
  });

  test("an effect that fails is undone, and happens when the event comes again", async () => {
    const id = randomUUID();
    const failing = async (tx: Database) => {
      await leaveTrace(id)(tx);
      throw new Error("half way");
    };
    await expect(handleOnce(database.db, inbox, id, failing)).rejects.toThrow("half way");
    expect(await traces(id)).toBe(0);
    await handleOnce(database.db, inbox, id, leaveTrace(id));
    expect(await traces(id)).toBe(1);
  });
});
