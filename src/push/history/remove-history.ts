/** Removes what is older than the history is kept. */
import { sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { boolean, integer } from "../../platform/database/readers.ts";
import { computed, rowCount, rows, selection } from "../../platform/database/statements.ts";
import { blockSize, historyBlocks, historyUsers, historyViews } from "../schema.ts";
import { placeOf } from "./history-blocks.ts";

/** Blocks that one transaction removes: for each of them it looks at what its users have left. */
const blockBatch = 200;
/** Views that one transaction removes. */
const viewBatch = 5_000;

const block = names(historyBlocks);
const user = names(historyUsers);
const view = names(historyViews);

const found = selection({ isAny: computed(boolean, sql`is_any`) });
const removed = selection({
  blocks: computed(integer, sql`(select count(*) from gone)::int`),
  users: computed(integer, sql`(select count(*) from forgotten)::int`),
});

/** Numbers of rows that a batch has removed. */
interface Removed {
  readonly blocks: number;
  readonly users: number;
  /** Whether there may be more. */
  readonly isFull: boolean;
}

/**
 * Removes a batch of the oldest entries, and users who have none left: nothing remains of them. Locked rows are skipped.
 * @param oldestKept the lowest id of a notification that is kept
 */
export async function removeEntries(tx: Database, oldestKept: string): Promise<Removed> {
  const isOld = sql`${block.notificationId} < ${oldestKept}::uuid`;
  const [old] = await rows(
    tx,
    found,
    sql`select ${found} from (select exists (select from ${historyBlocks} where ${isOld}) as is_any) as checked`,
  );
  if (!old?.isAny) return { blocks: 0, users: 0, isFull: false };
  // A step of planning could give an entry to a user who has none now. The lock must be acquired before the next
  // statement takes its snapshot.
  await tx.execute(sql`select pg_advisory_xact_lock(hashtext('push.plan'))`);
  const size = sql.raw(String(blockSize));
  const [done] = await rows(
    tx,
    removed,
    sql`
      with chosen as (
        select ${block.userBlock} as chosen_block, ${block.notificationId} as chosen_id from ${historyBlocks}
        where ${isOld} order by ${block.notificationId} nulls first limit ${blockBatch} for update skip locked
      ),
      gone as (
        delete from ${historyBlocks} using chosen
        where ${block.userBlock} = chosen_block and ${block.notificationId} = chosen_id
        returning ${block.userBlock}, ${block.recipientBits}
      ),
      ended as (
        select ended_block, had & ~coalesce(left_over, 0::bit(${size})) as bits
        from (
          select ${block.userBlock} as ended_block, bit_or(${block.recipientBits}) as had from gone group by ended_block
        ) as grouped
        cross join lateral (
          select bit_or(${block.recipientBits}) as left_over from ${historyBlocks}
          where ${block.userBlock} = ended_block and not ${isOld}
        ) as kept
      ),
      forgotten as (
        delete from ${historyUsers} using ended
        where ${user.userNumber} between ended_block::bigint * ${size} and ended_block::bigint * ${size} + ${size} - 1
          and get_bit(bits, ${placeOf(user.userNumber)}) = 1
        returning 1
      )
      select ${removed}`,
  );
  if (!done) throw new Error("the removal of history returned no row");
  return { ...done, isFull: done.blocks === blockBatch };
}

/** Removes a batch of the oldest views. Locked rows are skipped. @returns how many rows, and whether there may be more */
export async function removeViews(
  tx: Database,
  oldestKept: string,
): Promise<{ readonly views: number; readonly isFull: boolean }> {
  const views = await rowCount(
    tx,
    sql`
      with chosen as (
        select ${view.userNumber} as chosen_number, ${view.notificationId} as chosen_id from ${historyViews}
        where ${view.notificationId} < ${oldestKept}::uuid
        order by ${view.notificationId} nulls first limit ${viewBatch} for update skip locked
      )
      delete from ${historyViews} using chosen
      where ${view.userNumber} = chosen_number and ${view.notificationId} = chosen_id returning 1 as one`,
  );
  return { views, isFull: views === viewBatch };
}
