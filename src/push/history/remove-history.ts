/** Removes entries that are too old: first the users who will have none left, block by block, and then the entries. */
import { and, eq, lt, type SQL, sql } from "drizzle-orm";
import { lowestUuidv7 } from "../../platform/crypto/random.ts";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { integer, listOf, names, nullable } from "../../platform/database/sql/readers.ts";
import {
  computed,
  ctid,
  isAmong,
  onlyRow,
  rowCount,
  rows,
  selection,
} from "../../platform/database/sql/statements.ts";
import { historyEntries } from "../recipients-schema.ts";
import { blockSize, historyBlocks, historyUsers, historyViews } from "../schema.ts";
import { bitOf, giveEntries, nextNumber, planLock, takeEntries, userLocks } from "./history-blocks.ts";

/** The most blocks of users that one transaction looks at. */
const usersBatch = 10;
/** The most blocks of which it removes users: all their entries are read, and planning waits. */
const forgetBatch = 2;
/** The number of blocks among which it looks for those with old entries. */
const searched = 1_000;
/** The entries after the old ones that are looked at first: most users with an old entry also have one of these. */
const nextEntries = 100;
/** The most rows of blocks, and of views, that one transaction removes. */
const rowBatch = 5_000;

const block = names(historyBlocks);
const user = names(historyUsers);
const view = names(historyViews);
const e = names(historyEntries, "e");
const size = sql.raw(String(blockSize));

const looked = selection({
  /** Blocks with users whose entries may all be old. */
  ending: computed(listOf(integer), sql`coalesce((select jsonb_agg(distinct ended_block) from users), '[]')`),
  /** The last block that was looked at; null if there is none left. */
  through: computed(nullable(integer), sql`through`),
});
const removal = selection({
  chosen: computed(integer, sql`(select count(*)::int from chosen)`),
  /** Without the chosen rows that were updated after the statement began. */
  removed: computed(integer, sql`(select count(*)::int from removed)`),
});

/** A condition: the user with this number has an entry that is a row and not too old. */
export const hasRow = (number: SQL, oldestKept: string): SQL => sql`exists (
  select from ${historyEntries} e where ${e.userNumber} = ${number} and ${e.notificationId} >= ${oldestKept}::uuid)`;

const known = selection({ id: user.userId });

/**
 * Removes users who have no entry that is to be kept, with their numbers. Planning waits only if there are any.
 * @param ended a query for their numbers; once nobody can give them an entry, it is looked at again
 * @returns how many
 */
export async function forgetEnded(tx: Database, ended: SQL): Promise<number> {
  const isEnded = sql`${user.userNumber} = any(array(${ended}))`;
  const found = await rows(tx, known, sql`select ${known} from ${historyUsers} where ${isEnded}`);
  if (found.length === 0) return 0;
  const ids = found.map(({ id }) => id);
  await planLock.exclusive(tx);
  await tx.execute(userLocks.exclusive(ids));
  return rowCount(
    tx,
    sql`
      delete from ${historyUsers} where ${user.userId} = any(${arrayLiteral(ids)}::text[]) and ${isEnded}
      returning 1 as one`,
  );
}

/** Removes the users who have no entry left, and then the old entries in blocks. */
interface EntryRemoval {
  /**
   * Removes users of the next few blocks; planning waits only if there are any.
   * @returns `committed` is to be called once the transaction has ended: the next call goes on from there
   */
  forgetUsers(tx: Database): Promise<{ readonly users: number; readonly isFull: boolean; committed(): void }>;
  /**
   * Removes a batch of the oldest blocks. Locked rows are skipped.
   * @returns undefined while users are to be removed
   */
  removeBlocks(tx: Database): Promise<{ readonly blocks: number; readonly isFull: boolean } | undefined>;
}

/** @param oldestKept the lowest id of a notification that is kept */
export function createEntryRemoval(oldestKept: string): EntryRemoval {
  const isOld = sql`${block.notificationId} < ${oldestKept}::uuid`;
  /** The last block whose users were looked at; null once all were. */
  let last: number | null = -1;

  /**
   * Items of a `with` list: `users` has the users of the blocks in `checked` whose entries are all old.
   * @param limit of the newer entries that are looked at; with one, `users` may have users who have a newer entry
   */
  const endedUsers = (limit: SQL) => sql`
    ended as (
      select checked_block as ended_block, had & ~coalesce(left_over, 0::bit(${size})) as bits
      from checked
      cross join lateral (
        select bit_or(${block.recipientBits}) as had from ${historyBlocks}
        where ${block.userBlock} = checked_block and ${isOld}
      ) as old
      cross join lateral (
        select bit_or(${block.recipientBits}) as left_over from (
          select ${block.recipientBits} from ${historyBlocks}
          where ${block.userBlock} = checked_block and not ${isOld} order by ${block.notificationId} ${limit}
        ) as next
      ) as kept
    ),
    users as (
      select ended_block, ended_number from ended
      cross join lateral (
        select ${user.userNumber} as ended_number from ${historyUsers}
        where ${user.userNumber} between ended_block::bigint * ${size} and ended_block::bigint * ${size} + ${size} - 1
          and get_bit(bits, ${bitOf(user.userNumber)}) = 1
        offset 0
      ) as among
      where bits <> 0::bit(${size}) and not ${hasRow(sql`ended_number`, oldestKept)}
    )`;

  return {
    async forgetUsers(tx) {
      const goOnFrom = (block: number | null) => () => {
        last = block;
      };
      if (last === null || (last === -1 && !(await hasOld(tx))))
        return { users: 0, isFull: false, committed: goOnFrom(null) };
      const found = await onlyRow(
        tx,
        looked,
        sql`
          with checked as materialized (
            select checked_block from generate_series(
              ${last}::int + 1,
              least(${last}::int + ${searched}::int, (select max(${block.userBlock}) from ${historyBlocks}))
            ) as checked_block
            cross join lateral (
              select from ${historyBlocks} where ${block.userBlock} = checked_block and ${isOld} limit 1
            ) as any_old
            order by checked_block limit ${usersBatch}
          ),
          ${endedUsers(sql`limit ${nextEntries}`)}
          select ${looked} from (
            select case when count(*) = ${usersBatch} then max(checked_block)
              when ${last}::int + ${searched}::int < (select max(${block.userBlock}) from ${historyBlocks})
              then ${last}::int + ${searched}::int end as through
            from checked
          ) as progress`,
      );
      const ending = found.ending.toSorted((a, b) => a - b).slice(0, forgetBatch);
      const ended = sql`
        with checked as (select unnest(${arrayLiteral(ending)}::int[]) as checked_block), ${endedUsers(sql``)}
        select ended_number from users`;
      const users = ending.length === 0 ? 0 : await forgetEnded(tx, ended);
      const next = found.ending.length > ending.length ? (ending.at(-1) ?? null) : found.through;
      return { users, isFull: next !== null, committed: goOnFrom(next) };
    },

    async removeBlocks(tx) {
      if (last !== null) return undefined;
      const { removed, isFull } = await removeBatch(tx, historyBlocks, block.notificationId, oldestKept);
      return { blocks: removed, isFull };
    },
  };

  async function hasOld(tx: Database): Promise<boolean> {
    const [old] = await tx
      .select({ id: historyBlocks.notificationId })
      .from(historyBlocks)
      .where(isOld)
      .limit(1);
    return old !== undefined;
  }
}

/**
 * Removes a batch of the oldest views. Locked rows are skipped.
 * @returns how many rows, and whether there may be more
 */
export async function removeViews(
  tx: Database,
  oldestKept: string,
): Promise<{ readonly views: number; readonly isFull: boolean }> {
  const { removed, isFull } = await removeBatch(tx, historyViews, view.notificationId, oldestKept);
  return { views: removed, isFull };
}

/** Removes the rows of the oldest notifications. Locked rows are skipped. */
async function removeBatch(
  tx: Database,
  table: typeof historyBlocks | typeof historyViews,
  notificationId: SQL,
  oldestKept: string,
): Promise<{ readonly removed: number; readonly isFull: boolean }> {
  const done = await onlyRow(
    tx,
    removal,
    sql`
      with chosen as (
        select ${ctid} as chosen_ctid from ${table} where ${notificationId} < ${oldestKept}::uuid
        order by ${notificationId} nulls first limit ${rowBatch} for update skip locked
      ), removed as (
        delete from ${table} where ${isAmong(ctid, sql`select chosen_ctid from chosen`)} returning 1
      )
      select ${removal}`,
  );
  return { removed: done.removed, isFull: done.chosen === rowBatch };
}

const entry = selection({ notificationId: block.notificationId });

/**
 * Removes the user's entries that are rows, and his number, without which those in blocks and views are nobody's. What
 * is kept moves to a new number; a view that is written meanwhile is lost. In a transaction that has the exclusive lock
 * of planning.
 * @param keptFrom keeps entries of notifications that were accepted at this moment or later; none unless given
 */
export async function forgetHistory(tx: Database, userId: string, keptFrom?: Date): Promise<void> {
  const ofUser = eq(historyUsers.userId, userId);
  const [before] = await tx.select().from(historyUsers).where(ofUser).for("update");
  if (!before) return;
  const since = keptFrom && lowestUuidv7(keptFrom.getTime());
  const bits = since
    ? await rows(tx, entry, sql`${takeEntries(before.userNumber, since)} returning ${entry}`)
    : [];
  const isOfNumber = eq(historyEntries.userNumber, before.userNumber);
  await tx
    .delete(historyEntries)
    .where(and(isOfNumber, since === undefined ? undefined : lt(historyEntries.notificationId, since)));
  const { notificationId } = historyEntries;
  const kept = [...bits, ...(await tx.select({ notificationId }).from(historyEntries).where(isOfNumber))];
  if (kept.length === 0) {
    await tx.delete(historyUsers).where(ofUser);
    return;
  }
  const { userNumber } = historyUsers;
  const [after] = await tx
    .update(historyUsers)
    .set({ userNumber: nextNumber })
    .where(ofUser)
    .returning({ userNumber });
  if (!after) throw new Error("the row of a user of the history is missing");
  const idsOf = (some: typeof bits) => sql`${arrayLiteral(some.map((one) => one.notificationId))}::uuid[]`;
  const ids = idsOf(kept);
  await tx.execute(giveEntries(after.userNumber, idsOf(bits)));
  await tx.update(historyEntries).set(after).where(isOfNumber);
  await tx.execute(sql`
    with moved as (
      delete from ${historyViews} where ${view.userNumber} = ${before.userNumber} and ${view.notificationId} = any(${ids})
      returning ${view.notificationId}, ${view.viewedAt}
    )
    insert into ${historyViews} (${view.userNumber}, ${view.notificationId}, ${view.viewedAt})
    select ${after.userNumber}::bigint, ${view.notificationId}, ${view.viewedAt} from moved`);
}
