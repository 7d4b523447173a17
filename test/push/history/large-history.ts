/**
 * A history as large as after months of sending, in PostgreSQL: 10,000 notifications, each for hundreds of
 * users. Two users have an entry of every one, which lie as far apart as sending puts them.
 */
import type postgres from "postgres";

/** Users with an entry of every notification: one has not seen the last few, the other has seen all. */
export const largest = { behind: "behind", upToDate: "up-to-date" } as const;
export const notificationCount = 10_000;
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
  await withoutIndexes(sql, async () => {
    // In the order in which planning writes: notification after notification.
    await sql.unsafe(`
      insert into push.history
      select case k when 0 then '${largest.behind}' when 1 then '${largest.upToDate}' else 'user-' || (n * ${rows / notificationCount} + k) % 50021 end,
        id,
        case k when 0 then n <= ${notificationCount - unseen} when 1 then true else (n + k) % 5 > 0 end
      from (select id, row_number() over (order by id) as n from push.notifications) as numbered,
        lateral generate_series(0, ${rows / notificationCount - 1} + n * 0) as k`);
  });
  // As autovacuum leaves them.
  await sql.unsafe("vacuum (analyze) push.history");
  await sql.unsafe("vacuum (analyze) push.notifications");
}

/** Fills faster; afterwards the indexes are what they were. */
async function withoutIndexes(sql: postgres.Sql, fill: () => Promise<void>): Promise<void> {
  const constraints = await sql<{ name: string; definition: string }[]>`
    select conname as name, pg_get_constraintdef(oid) as definition from pg_constraint
    where conrelid = 'push.history'::regclass and contype = 'p'`;
  const indexes = await sql<{ name: string; definition: string }[]>`
    select indexname as name, indexdef as definition from pg_indexes
    where schemaname = 'push' and tablename = 'history' and indexname <> all (${constraints.map(({ name }) => name)})`;
  for (const { name } of constraints) await sql.unsafe(`alter table push.history drop constraint ${name}`);
  for (const { name } of indexes) await sql.unsafe(`drop index push.${name}`);
  await fill();
  for (const { name, definition } of constraints) {
    await sql.unsafe(`alter table push.history add constraint ${name} ${definition}`);
  }
  for (const { definition } of indexes) await sql.unsafe(definition);
}
