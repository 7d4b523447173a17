/** The entries of users in the history, one by one, for tests: in the tables the users of a block share a row. */
import { type SQL, sql } from "drizzle-orm";
import type { Database } from "../../src/platform/database/database.ts";
import { rawRows } from "../../src/platform/database/sql/statements.ts";
import { entriesFor, numberOf } from "../../src/push/history/history-blocks.ts";

/** A table of entries for `from`: user_id, notification_id, viewed, viewed_at. */
export const historyEntries: SQL = sql`(
  select e.user_id, e.notification_id, v.viewed_at is not null as viewed, v.viewed_at
  from (
    select user_id, user_number, notification_id from push.history_users join push.history_blocks
      on user_block = user_number / 512 and get_bit(recipient_bits, (user_number % 512)::int) = 1
    union all
    select user_id, user_number, notification_id from push.history_users join push.history_entries using (user_number)
  ) e
  left join push.history_views v on v.user_number = e.user_number and v.notification_id = e.notification_id
) as history`;

/** Gives users an entry of the notification, as planning does. @param users selects their ids */
export async function insertEntries(db: Database, notificationId: string, users: SQL): Promise<void> {
  await rawRows(
    db,
    sql`
      with recipient as materialized (
        select one as person, 0 as minutes, 0 as device, known_number
        from (${users}) as users (one) left join lateral ${numberOf(sql`users.one`)}
      ),
      ${entriesFor(sql`recipient`, sql`${notificationId}::uuid`)}
      select 1 as one`,
  );
}

/** Marks entries as viewed, long ago. @param which selects user_id and notification_id from {@link historyEntries} */
export async function viewEntries(db: Database, which: SQL): Promise<void> {
  await db.execute(sql`
    insert into push.history_views
    select user_number, notification_id, '-infinity' from (${which}) as viewed join push.history_users using (user_id)
    on conflict do nothing`);
}

export async function clearHistory(db: Database): Promise<void> {
  for (const table of ["history_blocks", "history_entries", "history_views", "history_users"]) {
    await db.execute(sql`delete from push.${sql.identifier(table)}`);
  }
}
