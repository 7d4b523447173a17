/** The parts of statements about one user's history: its reader, and the reader's entries and views. */
import { type SQL, sql } from "drizzle-orm";
import { names } from "../../platform/database/sql/names.ts";
import { historyBlocks, historyUsers, historyViews, notifications } from "../schema.ts";
import { blockOf, placeOf } from "./history-blocks.ts";

const user = names(historyUsers);
const block = names(historyBlocks);
const view = names(historyViews);
const notification = names(notifications);

/** An item of a `with` list: the reader; no row if the user has no entry. */
export const readerOf = (userId: string): SQL => sql`
  reader as (
    select ${user.userNumber} as my_number, ${blockOf(user.userNumber)} as my_block,
      ${placeOf(user.userNumber)} as my_place
    from ${historyUsers} where ${user.userId} = ${userId}
  )`;

export const myNumber: SQL = sql`(select my_number from reader)`;

/**
 * The reader's entries without those that were recalled, for `from`. By subquery and `<>`, the index gives the order.
 */
export const myEntries: SQL = sql`
  ${historyBlocks} where ${block.userBlock} = (select my_block from reader)
    and get_bit(${block.recipientBits}, (select my_place from reader)) <> 0
    and ${block.notificationId} not in (
      select ${notification.id} from ${notifications} where ${notification.recalledAt} is not null)`;

/** A condition: the reader has such a view of the entry. All of the reader's views are read once. */
export const isViewed = (condition = sql`true`): SQL => sql`
  ${block.notificationId} in (
    select ${view.notificationId} from ${historyViews} where ${view.userNumber} = ${myNumber} and ${condition})`;
