/** The statements that read history, each bounded by the notifications to one user's block. */
import { type SQL, sql } from "drizzle-orm";
import { boolean, names, text } from "../../platform/database/sql/readers.ts";
import { computed, isoTime, selection } from "../../platform/database/sql/statements.ts";
import { historyBlocks, historyUsers, historyViews, notifications } from "../schema.ts";
import { bitOf, blockOf } from "./history-blocks.ts";

const user = names(historyUsers);
const block = names(historyBlocks);
const view = names(historyViews);
const notification = names(notifications);

/** An item of a `with` list: the reader; no row if the user has no entry. */
const readerOf = (userId: string): SQL => sql`
  reader as (
    select ${user.userNumber} as my_number, ${blockOf(user.userNumber)} as my_block,
      ${bitOf(user.userNumber)} as my_bit
    from ${historyUsers} where ${user.userId} = ${userId}
  )`;

const myNumber: SQL = sql`(select my_number from reader)`;

/** The reader's entries without recalled ones, for `from`. By subquery and `<>`, the index gives the order. */
const myEntries: SQL = sql`
  ${historyBlocks} where ${block.userBlock} = (select my_block from reader)
    and get_bit(${block.recipientBits}, (select my_bit from reader)) <> 0
    and ${block.notificationId} not in (
      select ${notification.id} from ${notifications} where ${notification.recalledAt} is not null)`;

/** A condition: the reader has such a view of the entry. All of the reader's views are read once. */
export const isViewed = (condition = sql`true`): SQL => sql`
  ${block.notificationId} in (
    select ${view.notificationId} from ${historyViews} where ${view.userNumber} = ${myNumber} and ${condition})`;

/** A range of a user's entries in a certain order. */
export interface Slice {
  readonly userId: string;
  /** An `order by` list, made by {@link orderOf}. */
  readonly order: SQL;
  readonly limit: number;
  readonly offset: number;
}

const n = names(notifications, "n");
const { title, message, image } = notification;
const { notificationId } = block;

/** A query in a statement with {@link readerOf}: the ids of the slice's entries. */
const slice = ({ order, limit, offset }: Slice): SQL => sql`
  select ${notificationId} from ${myEntries} order by ${order} limit ${limit}::bigint offset ${offset}::bigint`;

/** The number of entries of the user, which is in every row of a page. */
export const pageTotal = selection({ total: computed(text, sql`total::text`) });

/** An entry of a page; all columns are null if the page is empty. */
export const pageEntry = selection({
  id: notificationId,
  viewed: computed(boolean, sql`was_viewed`),
  title,
  message,
  image,
  sendAt: computed(text, sql`send_at`),
});

/**
 * The entries of a slice, each with the number of all of the user's; one row without an entry if the slice is empty.
 * With `markViewed` they are marked too, and returned as they were before.
 */
export function pageStatement(page: Slice, markViewed: boolean): SQL {
  // Views are written in the order of ids, so that concurrent calls wait for each other instead of deadlocking.
  const marking = sql`, marked as (
      insert into ${historyViews} (${view.userNumber}, ${view.notificationId}, ${view.viewedAt})
      select ${myNumber}, ${notificationId}, now() from page where not was_viewed order by ${notificationId}
      on conflict do nothing
    )`;
  return sql`
    with ${readerOf(page.userId)},
    page as materialized (
      select ${notificationId}, ${isViewed()} as was_viewed from (${slice(page)}) as slice
    ), entries as (
      select ${notificationId}, was_viewed, ${title}, ${message}, ${image},
        ${isoTime(n.acceptedAt)} as send_at
      from page join ${notifications} n on ${n.id} = ${notificationId}
    )${markViewed ? marking : sql``}
    select ${pageTotal}, ${pageEntry}
    from (select count(*) as total from ${myEntries}) as counted
    left join entries on true
    order by ${page.order}`;
}

/** Whether all of certain entries are viewed. */
export const summary = selection({ isViewed: computed(boolean, sql`is_viewed`) });

/** A statement with one row: whether no entry of the user is unread. */
export function allViewedStatement(userId: string): SQL {
  const unread = sql`select from ${myEntries} and not ${isViewed()}`;
  return sql`with ${readerOf(userId)} select ${summary} from (select not exists (${unread}) as is_viewed) as all_of_them`;
}

/** A statement with one row: whether no entry of the slice is unread. */
export function pageViewedStatement(page: Slice): SQL {
  const all = sql`select coalesce(bool_and(${isViewed()}), true) as is_viewed from (${slice(page)}) as slice`;
  return sql`with ${readerOf(page.userId)} select ${summary} from (${all}) as page`;
}
