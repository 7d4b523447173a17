/**
 * The lock between planning and the removal of users, an advisory lock of PostgreSQL. A step of planning has it shared,
 * so that steps run side by side; what removes a user has it alone, so that no step gives an entry in the history to a
 * user whose number is being removed or replaced. Both have it until the end of their transactions, and acquire it
 * before the statement that reads what it guards, whose snapshot would otherwise be older than the lock.
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
