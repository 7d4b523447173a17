/** A database with what push's janitor cleans up, and a look into it, for the tests of a file. */
import { type SQL, sql } from "drizzle-orm";
import { beforeAll, beforeEach } from "vitest";
import type { Database, OpenDatabase } from "../../src/platform/database/database.ts";
import { pushMigrations } from "../../src/push/database.ts";
import { cleanUp } from "../../src/push/janitor.ts";
import { type MovableClock, movableClock } from "../support/movable-clock.ts";
import { insertNotification, type NotificationRow } from "../support/push-rows.ts";
import { rows } from "../support/rows.ts";
import type { Backend } from "../support/servers.ts";
import { createMigratedServiceDatabase, type ServiceDatabase } from "../support/service-database.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";

export const day = 24 * 60 * 60;
export const historyRetentionDays = 180;
/** The age in seconds at which history goes. */
export const limit = historyRetentionDays * day;

/** What the janitor cleans up, and what it writes, which is the last one. */
export const tables = [
  "devices",
  "history_blocks",
  "history_entries",
  "history_views",
  "history_users",
  "notifications",
  "notification_users",
  "delivery_chunks",
  "idempotency_keys",
  "inbox",
  "outbox",
] as const;
type Table = (typeof tables)[number];

/** For a suite: its database is empty at the beginning of each test. */
export function janitorOn(backend: Backend) {
  let own: ServiceDatabase;
  let database: OpenDatabase;
  let clock: MovableClock;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    own = await createMigratedServiceDatabase(backend, pushMigrations);
    cleanup.defer(() => own.drop());
    database = await own.open();
  });
  beforeEach(async () => {
    clock = movableClock();
    for (const table of tables) await database.db.execute(sql`delete from push.${sql.identifier(table)}`);
  });

  const db = (): Database => database.db;
  const at = (seconds: number) => sql`${new Date(clock.now() + seconds * 1000).toISOString()}::timestamptz`;
  return {
    db,
    /** A further process's connections. */
    open: () => own.open(),
    clock: () => clock,
    /** The moment in so many seconds. */
    at,
    round: (of: Database = db()) => cleanUp({ db: of, historyRetentionDays }),
    /** @param table one of the tables, or other rows */
    async column(name: string, table: Table | SQL): Promise<string[]> {
      const from = typeof table === "string" ? sql`push.${sql.identifier(table)}` : table;
      const found = await rows<{ value: string }>(
        db(),
        sql`select ${sql.identifier(name)}::text as value from ${from} order by 1`,
      );
      return found.map(({ value }) => value);
    },
    async count(table: Table): Promise<number> {
      const [found] = await rows<{ n: number }>(
        db(),
        sql`select count(*)::int as n from push.${sql.identifier(table)}`,
      );
      return Number(found?.n);
    },
    async device(token: string, expiresIn: number): Promise<void> {
      await db().execute(sql`
        insert into push.devices (user_id, provider, token, token_hash, utc_offset, expires_at, registered_at, renewed_at)
        values ('anna', 'fcm', ${token}, sha256(${token}::text::bytea), 0, ${at(expiresIn)}, now(), now())`);
    },
    /** A notification accepted so many seconds ago. */
    notification: (age: number, row: Omit<NotificationRow, "acceptedAt"> = {}) =>
      insertNotification(db(), { acceptedAt: clock.now() - age * 1000, ...row }),
  };
}
