import { sql } from "drizzle-orm";
import { batched } from "./batched-lookup.ts";
import type { Executor } from "./database.ts";

/**
 * Confirms what others have committed by a commit that comes after it, which PostgreSQL confirms later. A message in
 * the log makes it one: it takes no table and no lock, and is read by nobody. Those who wait share the next one.
 */
export function createConfirm(db: Executor): () => Promise<void> {
  const nextCommit = batched({
    load: async (keys: readonly "commit"[]) => {
      await db.execute(sql`select pg_logical_emit_message(true, 'confirm', ''::text)`);
      return new Map(keys.map((key) => [key, true]));
    },
  });
  return async () => {
    await nextCommit("commit");
  };
}
