/** The statements that read history, each bounded by the notifications to one user's block. */
import { type SQL, sql } from "drizzle-orm";
import { arrayLiteral } from "../../platform/database/database.ts";
import {
  boolean,
  listOf,
  names,
  nullable,
  type Reader,
  text,
  UnexpectedValueError,
} from "../../platform/database/sql/readers.ts";
import { computed, isoTime, selection } from "../../platform/database/sql/statements.ts";
import { historyEntries } from "../recipients-schema.ts";
import { historyBlocks, historyUsers, historyViews, notifications } from "../schema.ts";
import { bitOf, blockOf } from "./history-blocks.ts";

const user = names(historyUsers);
const block = names(historyBlocks);
const entry = names(historyEntries);
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

const { notificationId } = block;

const isKept = sql`${notificationId} not in (
    select ${notification.id} from ${notifications} where ${notification.recalledAt} is not null)`;

/**
 * Queries for the reader's entries without recalled ones: those in blocks, and those that are rows. By subquery and
 * `<>`, the index gives the order.
 */
const kinds: readonly SQL[] = [
  sql`
    select ${notificationId} from ${historyBlocks} where ${block.userBlock} = (select my_block from reader)
      and get_bit(${block.recipientBits}, (select my_bit from reader)) <> 0 and ${isKept}`,
  sql`
    select ${notificationId} from ${historyEntries} where ${entry.userNumber} = ${myNumber} and ${isKept}`,
];

/** All of them, for `from`. */
const myEntries: SQL = sql`(${sql.join([...kinds], sql` union all `)}) as my_entries`;

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

/** A query in a statement with {@link readerOf}: the ids of the slice's entries. Of either kind as many may be in it. */
function slice({ order, limit, offset }: Slice): SQL {
  const most = sql`${offset}::bigint + ${limit}::bigint`;
  const firsts = kinds.map((entries) => sql`(${entries} order by ${order} limit ${most})`);
  return sql`
    select ${notificationId} from (${sql.join(firsts, sql` union all `)}) as firsts
    order by ${order} limit ${limit}::bigint offset ${offset}::bigint`;
}

/** The number of entries of the user, which is in every row of a page. */
export const pageTotal = selection({ total: computed(text, sql`total::text`) });

const strings: Reader<Readonly<Record<string, string>>> = {
  read(value) {
    if (typeof value !== "object" || value === null) throw new UnexpectedValueError("an object", value);
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, text.read(one)]));
  },
};

/** An entry of a page; all columns are null if the page is empty. */
export const pageEntry = selection({
  id: notificationId,
  viewed: computed(boolean, sql`was_viewed`),
  /** In the default language, as is the message. */
  title,
  message,
  image,
  sendAt: computed(text, sql`send_at`),
  link: computed(nullable(text), sql`opened_link`),
  data: computed(nullable(strings), sql`app_data`),
  /** The reader's values for the names in the texts; null: there are none. */
  variables: computed(nullable(strings), sql`own_variables`),
  /** The languages of its texts; null: it has one text, in a language that is not known. */
  languages: computed(nullable(listOf(text)), sql`languages`),
  defaultLanguage: computed(nullable(text), sql`default_language`),
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
        ${isoTime(n.acceptedAt)} as send_at, ${n.content} ->> 'link' as opened_link, ${n.content} -> 'data' as app_data,
        (select ${entry.variables} from ${historyEntries}
          where ${entry.userNumber} = ${myNumber} and ${entry.notificationId} = ${n.id}) as own_variables,
        (select jsonb_agg(tag) from jsonb_object_keys(${n.content} -> 'texts') as tag) as languages,
        ${n.content} ->> 'defaultLanguage' as default_language
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
  const unread = sql`select from ${myEntries} where not ${isViewed()}`;
  return sql`with ${readerOf(userId)} select ${summary} from (select not exists (${unread}) as is_viewed) as all_of_them`;
}

/** A statement with one row: whether no entry of the slice is unread. */
export function pageViewedStatement(page: Slice): SQL {
  const all = sql`select coalesce(bool_and(${isViewed()}), true) as is_viewed from (${slice(page)}) as slice`;
  return sql`with ${readerOf(page.userId)} select ${summary} from (${all}) as page`;
}

/** A text of a notification in one of its languages. */
export const textIn = selection({
  id: n.id,
  title: computed(text, sql`told ->> 'title'`),
  message: computed(text, sql`told ->> 'message'`),
});

/** A statement for texts: the notifications' ids, and for each the language of its text. */
export const textsStatement = (ids: readonly string[], languages: readonly string[]): SQL => sql`
  select ${textIn}
  from unnest(${arrayLiteral(ids)}::uuid[], ${arrayLiteral(languages)}::text[]) as wanted (wanted_id, tag)
    join ${notifications} n on ${n.id} = wanted_id
    cross join lateral (select ${n.content} -> 'texts' -> tag as told) as text_of
  where told is not null`;
