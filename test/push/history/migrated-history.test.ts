/** Histories of an older version, which had a row for each user and notification: nobody loses or gains an entry. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { sql } from "drizzle-orm";
import { expect, test } from "vitest";
import { uuidv7 } from "../../../src/platform/crypto/uuid.ts";
import { openDatabase } from "../../../src/platform/database/open.ts";
import { pushMigrations } from "../../../src/push/database.ts";
import { createHistory } from "../../../src/push/history/history.ts";
import { copyEmptyEmbeddedDatabase } from "../../support/embedded-template.ts";
import { historyEntries, insertEntries } from "../../support/history-rows.ts";
import { olderMigrations } from "../../support/older-migrations.ts";
import { rows } from "../../support/rows.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const cleanup = suiteCleanup();

test("entries and what was viewed of them, and when, are what they were", async () => {
  const dataDir = mkdtempSync(join(tmpdir(), "gatepost-migrated-"));
  cleanup.defer(() => rmSync(dataDir, { recursive: true }));
  const settings = { kind: "embedded", dataDir: join(dataDir, "push") } as const;
  await copyEmptyEmbeddedDatabase(settings.dataDir);
  const older = await openDatabase(settings, olderMigrations(pushMigrations, 9));
  await older.migrate();
  const ids = Array.from({ length: 20 }, (_, index) => uuidv7(1e12 + index * 1000));
  for (const [index, id] of ids.entries()) {
    await older.db.execute(sql`
      insert into push.notifications (id, title, message, utc_offsets, client_id, state, accepted_at, expires_at,
        chunks, recipients, completed_at)
      values (${id}::uuid, 't', 'm', '{0}', 'backoffice', 'COMPLETED', to_timestamp(1e9), now(), 0, 0, now())`);
    await older.db.execute(sql`
      insert into push.history
      select 'user-' || n, ${id}::uuid, (n + ${index}::int) % 3 = 0,
        case when (n + ${index}::int) % 6 = 0 then now() end
      from generate_series(1, 1100) n where n % (${index}::int + 1) = 0`);
  }
  await older.db.execute(sql`
    insert into push.devices (user_id, provider, token, token_hash, utc_offset, expires_at, registered_at, renewed_at)
    select 'user-' || n, 'outbox', n::text, sha256(n::text::bytea), n % 4 * 60, now(), now(), now()
    from generate_series(1, 1000) n order by n desc`);
  const before = await rows(
    older.db,
    sql`select user_id, notification_id, viewed, viewed_at from push.history order by user_id, notification_id`,
  );
  // Who reads all tables meanwhile, as a dump does, must not keep the table from going at the end.
  const file = fileURLToPath(new URL("0010_history_blocks.sql", `${pushMigrations.folder}/`));
  const [first = ""] = readFileSync(file, "utf8").split("--> statement-breakpoint");
  const held = await older.db.transaction(async (tx) => {
    await tx.execute(sql.raw(first));
    return rows(
      tx,
      sql`select mode from pg_locks where relation = to_regclass('push.history') and mode like 'Access%'
        and database = (select oid from pg_database where datname = current_database()) order by 1`,
    );
  });
  expect(held).toContainEqual({ mode: "AccessExclusiveLock" });
  await older.close();

  const database = await openDatabase(settings, pushMigrations);
  cleanup.defer(() => database.close());
  await database.migrate();
  const { db } = database;
  const after = await rows(
    db,
    sql`
      select user_id, notification_id, viewed, nullif(viewed_at, '-infinity') as viewed_at from ${historyEntries}
      order by user_id, notification_id`,
  );
  expect(after).toEqual(before);

  // Users of one offset are together, those whose devices were registered first before the others.
  const ordered = (by: string) =>
    rows(
      db,
      sql`select user_id from push.history_users join push.devices using (user_id) order by ${sql.raw(by)}`,
    );
  expect(await ordered("user_number")).toEqual(await ordered("utc_offset, id"));

  // It goes on as a new one does.
  const [id = ""] = ids;
  await insertEntries(db, id, sql`values ('user-1'), ('a-new-user')`);
  const history = createHistory({ db });
  const total = async (user: string) =>
    (await history.page(user, { page: 0, size: 1, sort: [] }, false)).totalElements;
  expect([await total("user-1"), await total("a-new-user"), await total("user-20")]).toEqual([1, 1, 6]);
});
