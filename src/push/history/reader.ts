/** What the statements about one user's history share: who reads it, and where the reader's entries and views are. */
import { type SQL, sql } from "drizzle-orm";
import { names } from "../../platform/database/names.ts";
import { historyBlocks, historyUsers, historyViews, notifications } from "../schema.ts";
import { blockOf, placeOf } from "./history-blocks.ts";

const user = names(historyUsers);
const block = names(historyBlocks);
const view = names(historyViews);
const notification = names(notifications);

/** The reader, for `with`: no row if the user has no entry. */
export const readerOf = (userId: string): SQL => sql`
  reader as (
    select ${user.userNumber} as my_number, ${blockOf(user.userNumber)} as my_block,
      ${placeOf(user.userNumber)} as my_place
    from ${historyUsers} where ${user.userId} = ${userId}
  )`;

export const myNumber: SQL = sql`(select my_number from reader)`;

/**
 * The reader's entries without those that were recalled, for `from`. The block comes from a subquery, as only then the
 * index gives the entries in order. `<>` is used because the planner takes `= 1` for something rare.
 */
export const myEntries: SQL = sql`
  ${historyBlocks} where ${block.userBlock} = (select my_block from reader)
    and get_bit(${block.recipientBits}, (select my_place from reader)) <> 0
    and ${block.notificationId} not in (
      select ${notification.id} from ${notifications} where ${notification.recalledAt} is not null)`;

/** Whether the reader has viewed the entry; with a condition, in that way. Reads all of the reader's views, once. */
export const isViewed = (condition = sql`true`): SQL => sql`
  ${block.notificationId} in (
    select ${view.notificationId} from ${historyViews} where ${view.userNumber} = ${myNumber} and ${condition})`;
