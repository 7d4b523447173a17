/**
 * A history as large as after months of sending, in PostgreSQL: 10,000 notifications, each for hundreds of
 * users. Two users have an entry of every one, which lie as far apart as sending puts them.
 */
import type postgres from "postgres";
import { blockSize } from "../../../src/push/schema.ts";

/** Users with an entry of every notification: one has not seen the last few, the other has seen all. */
export const largest = { behind: "behind", upToDate: "up-to-date" } as const;
export const notificationCount = 10_000;
const userCount = 50_021;
export const unseen = 5;
/** The first notification; each of the others is 25 minutes after the one before. */
export const firstAcceptedAt = Date.UTC(2026, 0, 1);
const betweenMs = 25 * 60_000;

/** @param sql as the owner of the tables, without a limit on time; nothing else uses them meanwhile */
export async function fillHistory(sql: postgres.Sql, rows: number): Promise<void> {
  await sql.unsafe(`
    insert into push.notifications (id, title, message, utc_offsets, client_id, state, accepted_at, expires_at,
      planned_at, recipients, chunks, completed_at)
    select (lpad(to_hex(ms), 12, '0') || '7' || left(noise, 3) || '8' || right(noise, 15))::uuid, 'title ' || n,
      repeat('m', 200), '{0}', 'backoffice', 'COMPLETED', at, at, at, 0, 0, at
    from (select n, md5(n::text) as noise, ${firstAcceptedAt} + n * ${betweenMs}::bigint as ms
          from generate_series(1, ${notificationCount}) as n) as made,
      lateral (select to_timestamp(ms / 1000.0) as at) as moment`);
  const perNotification = rows / notificationCount;
  await sql.unsafe(`
    insert into push.history_users
    select case n when 0 then '${largest.behind}' when 1 then '${largest.upToDate}' else 'user-' || n end, n
    from generate_series(0, ${userCount - 1}) as n`);
  await sql.unsafe(`
    create temporary table entries as
    select id, n, case when k < 2 then k else (n * ${perNotification} + k) % ${userCount} end as number
    from (select id, row_number() over (order by id) as n from push.notifications) as numbered,
      lateral generate_series(0, ${perNotification - 1} + n * 0) as k`);
  // In the order in which planning writes: notification after notification.
  await sql.unsafe(`
    insert into push.history_blocks
    select number / ${blockSize}, id, bit_or(set_bit(0::bit(${blockSize}), (number % ${blockSize})::int, 1))
    from entries group by 1, 2 order by 2, 1`);
  // Rows of their own, of all users but those two, to whom they would show twice: nearly all notifications are for one
  // user, the newest for a thousand.
  await sql.unsafe(`
    insert into push.history_entries
    select 2 + n % ${userCount - 2}, id from (
      select id, nth * 5 as n from (select id, row_number() over (order by id) as nth from push.notifications) as each
      union all select max(id::text)::uuid, named from push.notifications, generate_series(1, 1000) as named group by named
    ) as numbered
    on conflict do nothing`);
  await sql.unsafe(`
    insert into push.history_views
    select distinct number, id, now() from entries
    where case number when 0 then n <= ${notificationCount - unseen} when 1 then true else (n + number) % 5 > 0 end
    order by 2, 1`);
  // As autovacuum leaves them.
  await sql.unsafe(
    "vacuum (analyze) push.history_users, push.history_blocks, push.history_entries, push.history_views, push.notifications",
  );
}
