/**
 * The statements that history is read by. What each costs is bounded by the entries of one user, and the first
 * pages and the summary by the size of a page: test/push/history holds the plans to it, on a table of millions.
 */
import { type SQL, sql } from "drizzle-orm";

/** Which entries of a user, in which order. */
export interface Slice {
  readonly userId: string;
  /** Of {@link orderOf}. */
  readonly order: SQL;
  readonly limit: number;
  readonly offset: number;
}

function slice({ userId, order, limit, offset }: Slice): SQL {
  return sql`
    select notification_id, viewed from push.history
    where user_id = ${userId} order by ${order} limit ${limit}::bigint offset ${offset}::bigint`;
}

/**
 * The entries of a slice, as they are when it begins, each with the number of all entries of the user; one row
 * without an entry if the slice is empty. With `markViewed` just these entries are marked, in this statement.
 */
export function pageStatement(page: Slice, markViewed: boolean): SQL {
  const { userId, order } = page;
  // Locked in the order of ids, so that those who mark the same entries wait for each other and do not deadlock.
  const marking = sql`, unread as (
      select notification_id from push.history
      where user_id = ${userId} and not viewed and notification_id in (select notification_id from page)
      order by notification_id for update
    ), marked as (
      update push.history set viewed = true
      where user_id = ${userId} and notification_id in (select notification_id from unread)
    )`;
  return sql`
    with page as materialized (${slice(page)}
    ), entries as (
      select notification_id, viewed, title, message, image,
        to_char(accepted_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as send_at
      from page join push.notifications on notifications.id = notification_id
    )${markViewed ? marking : sql``}
    select total::text, notification_id::text as id, viewed, title, message, image, send_at
    from (select count(*) as total from push.history where user_id = ${userId}) as counted
    left join entries on true
    order by ${order}`;
}

/** Whether no entry of the user is unread. */
export function allViewedStatement(userId: string): SQL {
  return sql`
    select not exists (select from push.history where user_id = ${userId} and not viewed) as viewed`;
}

/** Whether no entry of the slice is unread. */
export function pageViewedStatement(page: Slice): SQL {
  return sql`select coalesce(bool_and(viewed), true) as viewed from (${slice(page)}) as page`;
}
