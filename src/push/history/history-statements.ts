/**
 * The statements that read history. The cost of each is bounded by the number of one user's entries; that of the first
 * pages and of the summary by the size of a page. test/push/history checks the query plans on a table of millions.
 */
import { type SQL, sql } from "drizzle-orm";
import { names } from "../../platform/database/names.ts";
import { boolean, text } from "../../platform/database/readers.ts";
import { computed, type Field, type Selection, selection } from "../../platform/database/statements.ts";
import { history, notifications } from "../schema.ts";

/** A range of a user's entries in a certain order. */
export interface Slice {
  readonly userId: string;
  /** From {@link orderOf}. */
  readonly order: SQL;
  readonly limit: number;
  readonly offset: number;
}

const { userId: user, notificationId, viewed, viewedAt } = names(history);
const notification = names(notifications, "n");
const { title, message, image } = names(notifications);

function slice({ userId, order, limit, offset }: Slice): SQL {
  return sql`
    select ${notificationId}, ${viewed}, ${viewedAt} from ${history}
    where ${user} = ${userId} order by ${order} limit ${limit}::bigint offset ${offset}::bigint`;
}

/** How many entries the user has, in every row of a page. */
export const pageTotal = selection({ total: computed(text, sql`total::text`) });

/** An entry of a page; all columns are null if the page is empty. */
export const pageEntry = selection({
  id: notificationId,
  viewed,
  title,
  message,
  image,
  sendAt: computed(text, sql`send_at`),
});

/**
 * The entries of a slice, each with the number of all entries of the user; one row without an entry if the slice is
 * empty. With `markViewed` the statement also marks these entries as viewed, and returns them as they were before.
 */
export function pageStatement(page: Slice, markViewed: boolean): SQL {
  const { userId, order } = page;
  // Locked in the order of ids, so that concurrent calls wait for each other instead of deadlocking.
  const marking = sql`, unread as (
      select ${notificationId} from ${history}
      where ${user} = ${userId} and not ${viewed} and ${notificationId} in (select ${notificationId} from page)
      order by ${notificationId} for update
    ), marked as (
      update ${history} set ${viewed} = true, ${viewedAt} = now()
      where ${user} = ${userId} and ${notificationId} in (select ${notificationId} from unread)
    )`;
  return sql`
    with page as materialized (${slice(page)}
    ), entries as (
      select ${notificationId}, ${viewed}, ${viewedAt}, ${title}, ${message}, ${image},
        to_char(${notification.acceptedAt} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as send_at
      from page join ${notifications} n on ${notification.id} = ${notificationId}
    )${markViewed ? marking : sql``}
    select ${pageTotal}, ${pageEntry}
    from (select count(*) as total from ${history} where ${user} = ${userId}) as counted
    left join entries on true
    order by ${order}`;
}

/** A statement with one row: whether all of certain entries are viewed. */
interface Summary {
  readonly selected: Selection<{ readonly isViewed: Field<boolean> }>;
  readonly statement: SQL;
}

/** Whether no entry of the user is unread. */
export function allViewedStatement(userId: string): Summary {
  const unread = sql`select from ${history} where ${user} = ${userId} and not ${viewed}`;
  const selected = selection({ isViewed: computed(boolean, sql`not exists (${unread})`) });
  return { selected, statement: sql`select ${selected}` };
}

/** Whether no entry of the slice is unread. */
export function pageViewedStatement(page: Slice): Summary {
  const selected = selection({ isViewed: computed(boolean, sql`coalesce(bool_and(${viewed}), true)`) });
  return { selected, statement: sql`select ${selected} from (${slice(page)}) as page` };
}
