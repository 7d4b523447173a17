/**
 * `npm run bench:history`: what one send to a million users writes, and how long its planning takes, into histories of
 * different sizes; and what they take on disk, and to read. In this process, on a PostgreSQL of its own.
 *
 *   BENCH_HISTORY=1,24,50,1000   millions of entries that are there before the send
 *   BENCH_USERS=1000000          users, with a device each
 *   BENCH_PERSONAL=0             millions of personal entries besides: each tenth user has as many over 180 days, each
 *                                of a notification of its own; the readers are among these users
 */
import postgres from "postgres";
import { usageIn } from "../../scripts/command.ts";
import { readArguments } from "../../src/command.ts";
import { openDatabase } from "../../src/platform/database/open.ts";
import { pushMigrations } from "../../src/push/database.ts";
import { createHistory, type History } from "../../src/push/history/history.ts";
import { createTestDatabase, postgresSettings } from "../support/backends.ts";
import { installPostgresql } from "../support/postgresql/binaries.ts";
import { postgresUrl, providePostgresql, requiredPostgresUrl } from "../support/postgresql/server.ts";
import { fillAudience } from "../support/send-audience.ts";
import { percentiles } from "./percentiles.ts";
import { planToAll } from "./planning.ts";

readArguments({ usage: usageIn(import.meta.filename), options: {} });

const sizes = (process.env["BENCH_HISTORY"] ?? "1,24,50,1000").split(",").map(Number);
const users = Number(process.env["BENCH_USERS"] ?? 1_000_000);
const personal = Number(process.env["BENCH_PERSONAL"] ?? 0);
/** Reads of each kind, each by another user. */
const reads = 1_000;
/** One user in so many has personal entries. */
const personalEvery = 10;
const days = 180;

const print = (line: string) => process.stdout.write(`${line}\n`);
const number = (value: number, digits = 0) =>
  value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const million = 1_000_000;

/** Copies the newest notification and its entries, to each fourth hour before it, until there are so many. */
async function fill(admin: postgres.Sql, entries: number): Promise<void> {
  const have = Number(
    (await admin`select sum(bit_count(recipient_bits)) as n from push.history_blocks`)[0]?.["n"],
  );
  const copies = Math.max(0, Math.round((entries - have) / users));
  await admin`
    create temporary table copied on commit preserve rows as
    select ((lpad(to_hex(('x' || left(id, 8) || substr(id, 10, 4))::bit(48)::bigint - 4 * 3600000 * (n + ${have}::bigint / ${users}::bigint)), 12, '0'))
      || right(replace(id, '-', ''), 20))::uuid as copy_id, id::uuid as original_id
    from (select max(id::text) as id from push.notifications) as newest, generate_series(1, ${copies}::int) as n`;
  await admin`
    insert into push.notifications (id, title, message, utc_offsets, client_id, state, accepted_at, expires_at,
      planned_at, recipients, chunks, completed_at)
    select copy_id, title, message, utc_offsets, client_id, 'COMPLETED', accepted_at, expires_at, planned_at,
      recipients, 0, now()
    from copied join push.notifications on id = original_id`;
  await admin`
    insert into push.history_blocks
    select user_block, copy_id, recipient_bits from copied join push.history_blocks on notification_id = original_id
    order by copy_id, user_block`;
  await admin`drop table copied`;
  // As autovacuum leaves it.
  await admin`vacuum analyze`;
}

/** Writes personal entries, day after day. Call it when users have their numbers. */
async function fillPersonal(admin: postgres.Sql, entries: number): Promise<void> {
  const eachDay = entries / days;
  for (let day = days; day > 0; day -= 1) {
    await admin`
      with made as materialized (
        select user_number, at, (lpad(to_hex(floor(extract(epoch from at) * 1000)::bigint), 12, '0') || '7'
          || left(noise, 3) || '8' || right(noise, 15))::uuid as made_id
        from (
          select user_number, now() - make_interval(days => ${day}::int, secs => row_number() over () * 86399.0 / ${eachDay}::float8) as at,
            md5(user_number || '/' || ${day}::int || '/' || nth) as noise
          from push.history_users, generate_series(1, ${Math.ceil((eachDay * personalEvery) / users)}::int) as nth
          where user_id ~ '^user-[0-9]+$' and substr(user_id, 6)::int % ${personalEvery}::int = 0
          order by 1 limit ${eachDay}::int
        ) as entry
      ), notified as (
        insert into push.notifications (id, title, message, content, audience_kind, audience, client_id, state,
          accepted_at, expires_at, planned_at, recipients, chunks, completed_at)
        select made_id, 'Your order is on its way', 'Hello {{name}}, it comes tomorrow.', jsonb_build_object('defaultLanguage', 'en',
            'texts', jsonb_build_object('en', jsonb_build_object('title', 'Your order is on its way', 'message', 'Hello {{name}}, it comes tomorrow.'),
              'de', jsonb_build_object('title', 'Deine Bestellung ist unterwegs', 'message', 'Hallo {{name}}, sie kommt morgen.')),
            'link', 'https://shop.example.com/orders/4711', 'data', jsonb_build_object('orderId', '4711')),
          'USERS', '{"anyOf":[],"except":[],"everybody":false,"users":1}', 'bench', 'COMPLETED', at, at, at, 1, 1, at
        from made
      )
      insert into push.history_entries select user_number, made_id, jsonb_build_object('name', 'Grace') from made`;
  }
}

/** Users whose histories are read: as far from each other as there are users. */
const readers = Array.from({ length: reads }, (_, turn) => `user-${Math.floor((turn * users) / reads)}`);

/** Makes the readers view all that they have, so that nothing ends the search for what is unread early. */
async function viewAll(admin: postgres.Sql): Promise<void> {
  await admin`
    insert into push.history_views
    select user_number, notification_id, now() from push.history_users
    cross join lateral (
      select notification_id from push.history_blocks
      where user_block = user_number / 512 and get_bit(recipient_bits, (user_number % 512)::int) = 1
      union all select notification_id from push.history_entries e where e.user_number = history_users.user_number
    ) as entry
    where user_id = any(${readers}) on conflict do nothing`;
  await admin`vacuum analyze push.history_views`;
}

/** @returns milliseconds */
async function timeReads(history: History, read: (history: History, user: string) => Promise<unknown>) {
  const took: number[] = [];
  for (const user of readers) {
    const started = performance.now();
    await read(history, user);
    took.push(performance.now() - started);
  }
  return percentiles(took);
}

async function run(adminUrl: string, database: Awaited<ReturnType<typeof openDatabase>>): Promise<void> {
  const admin = postgres(adminUrl, { max: 1, onnotice: () => undefined });
  try {
    print(`Filling the table with ${number(users)} devices`);
    await fillAudience(database.db, { devices: users, users });
    await admin`vacuum analyze push.devices`;
    // With their first notification users get their numbers.
    await planToAll(database);
    const history = createHistory({ db: database.db });
    await fillPersonal(admin, personal * million);
    print(
      "Entries before   WAL of the send   planned in   history on disk   a page of 20: p50, p99   a summary: p50, p99",
    );
    for (const size of sizes) {
      await fill(admin, size * million);
      await admin`checkpoint`;
      const position = async () =>
        Number((await admin`select pg_current_wal_insert_lsn() - '0/0' as n`)[0]?.["n"]);
      const before = await position();
      const { ms, recipients } = await planToAll(database);
      const written = (await position()) - before;
      if (recipients !== users) throw new Error(`${recipients} recipients of ${users}`);
      const [disk] = await admin`
        select sum(pg_total_relation_size(oid)) as bytes from pg_class
        where relname in ('history_users', 'history_blocks', 'history_entries', 'history_views')`;
      await viewAll(admin);
      const page = await timeReads(history, (of, user) =>
        of.page(user, { page: 0, size: 20, sort: [] }, false, ["de"]),
      );
      const summary = await timeReads(history, (of, user) => of.summary(user));
      print(
        [
          `${number(size)} million`.padStart(14),
          `${number(written / million)} MB`.padStart(17),
          `${number(ms / 1000, 1)} s`.padStart(12),
          `${number(Number(disk?.["bytes"]) / million)} MB`.padStart(17),
          ...[page, summary].map(({ p50, p99 }) => `${number(p50, 1)}, ${number(p99, 1)} ms`.padStart(24)),
        ].join(" "),
      );
    }
  } finally {
    await admin.end();
  }
}

const stopPostgresql = await providePostgresql({ durable: true });
if (!postgresUrl()) {
  print(`This measurement needs PostgreSQL. ${installPostgresql}`);
  process.exit(1);
}
const holder = await createTestDatabase();
const adminUrl = requiredPostgresUrl();
adminUrl.pathname = `/${holder.name}`;
const database = await openDatabase({ ...postgresSettings(holder), poolSize: 4 }, pushMigrations);
try {
  await database.migrate();
  await run(adminUrl.href, database);
} finally {
  await database.close();
  await holder.drop();
  await stopPostgresql();
}
