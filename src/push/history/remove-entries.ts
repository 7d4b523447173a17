/** Removes entries that are rows of their own and too old, and their users who have no other entry. */
import { type SQL, sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/readers.ts";
import { ctid, isAmong, rowCount } from "../../platform/database/sql/statements.ts";
import { historyEntries } from "../recipients-schema.ts";
import { historyBlocks, historyUsers } from "../schema.ts";
import { bitOf, blockOf } from "./history-blocks.ts";
import { forgetEnded, hasRow } from "./remove-history.ts";

/** The most rows that one transaction removes; of users without another row all blocks are read. */
const rowBatch = 1_000;

const entry = names(historyEntries);
const user = names(historyUsers);
const b = names(historyBlocks, "b");

/**
 * Removes a batch of the oldest rows; planning waits only if a user goes with them.
 * @returns how many, and whether there may be more
 */
export async function removeEntries(
  tx: Database,
  oldestKept: string,
): Promise<{ readonly entries: number; readonly users: number; readonly isFull: boolean }> {
  const oldest = (column: SQL) => sql`
    select ${column} from ${historyEntries} where ${entry.notificationId} < ${oldestKept}::uuid
    order by ${entry.notificationId} nulls first limit ${rowBatch}`;
  const users = await forgetEnded(
    tx,
    sql`
      select ended_number from (
        select ended_number from (
          select ${user.userNumber} as ended_number from ${historyUsers}
          where ${user.userNumber} in (${oldest(entry.userNumber)})
        ) as known
        where not ${hasRow(sql`ended_number`, oldestKept)} offset 0
      ) as without_row
      where not exists (
        select from ${historyBlocks} b
        where ${b.userBlock} = ${blockOf(sql`ended_number`)} and get_bit(${b.recipientBits}, ${bitOf(sql`ended_number`)}) = 1)`,
  );
  const removed = await rowCount(
    tx,
    sql`delete from ${historyEntries} where ${isAmong(ctid, sql`${oldest(ctid)} for update`)} returning 1 as one`,
  );
  return { entries: removed, users, isFull: removed === rowBatch };
}
