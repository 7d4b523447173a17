/**
 * The lock between planning and the removal of users, an advisory lock of PostgreSQL: shared by steps of planning,
 * exclusive for what removes a user's number, so that no step gives that user an entry. Held until the end of the
 * transaction, and acquired before the statement that reads what it guards.
 */
import { sql } from "drizzle-orm";
import type { Executor } from "../platform/database/database.ts";

const key = sql.raw("hashtext('push.plan')");

export const planLock = {
  /** Waits until nobody removes a user. @param tx a transaction */
  async shared(tx: Executor): Promise<void> {
    await tx.execute(sql`select pg_advisory_xact_lock_shared(${key})`);
  },
  /** Waits until no step of planning runs, and lets none begin. @param tx a transaction */
  async exclusive(tx: Executor): Promise<void> {
    await tx.execute(sql`select pg_advisory_xact_lock(${key})`);
  },
};
