/**
 * `npm run bench:expiry`: whether the janitor keeps ahead where 2,500 authorizations a second are issued, so that as
 * many expire: an hour of them has, and is removed while as many are issued, a third by one process, a third by four,
 * and a third by one while a snapshot is held, as a dump does. Beside it somebody asks for introspections. On a
 * PostgreSQL of its own.
 *
 *   BENCH_EXPIRED=9000000  BENCH_SECONDS=12 of introspections  BENCH_LIMIT=60 seconds for each third
 */
import { rmSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import postgres from "postgres";
import { usageIn } from "../../scripts/command.ts";
import { readArguments } from "../../src/command.ts";
import { installPostgresql } from "../support/postgresql/binaries.ts";
import { postgresUrl, providePostgresql, requiredPostgresUrl } from "../support/postgresql/server.ts";
import { introspector, type Preparation, prepare } from "./prepare.ts";
import { run } from "./processes.ts";
import { basic, managementOf, ports, startProduct, warmIntrospection } from "./product.ts";

readArguments({ usage: usageIn(import.meta.filename), options: {} });

/** Authorizations that are issued, and expire. */
const perSecond = 2_500;
const expired = Number(process.env["BENCH_EXPIRED"] ?? perSecond * 3_600);
const third = Math.ceil(expired / 3);
const seconds = Number(process.env["BENCH_SECONDS"] ?? 12);
const limitMs = Number(process.env["BENCH_LIMIT"] ?? 60) * 1000;
/** Introspections a second, beside all the rest. */
const askedPerSecond = 200;
const warmUpSeconds = 2;
/** Authorizations of the bystander. */
const known = 1_000;

const print = (line: string) => process.stdout.write(`${line}\n`);
const whole = (value: number) => Math.round(value).toLocaleString("en-US");

/** Writes authorizations that are issued from a moment on, one after the other, and are valid for so many days. */
async function issue(admin: postgres.Sql, from: number, count: number, days: number): Promise<void> {
  const step = 500_000;
  for (let first = 0; first < count; first += step) {
    await admin`
      insert into auth.authorizations (id, client_id, identity_id, grant_type, scopes, created_at, client_generation,
        identity_generation, expires_at, refreshed_at, expiry_day, family_hash, refresh_hash)
      select (lpad(to_hex((${from}::float8 + n * 1000.0 / ${perSecond}::int)::bigint), 12, '0') || '7'
          || substr(random_id, 1, 3) || '8' || substr(random_id, 4, 15))::uuid, 'backend', 'user-' || random_id,
        'auth', '{profile,orders}', issued_at, 0, 0, issued_at + lifetime, issued_at + interval '15 minutes',
        ((issued_at + lifetime) at time zone 'UTC')::date, sha256(random_id::bytea), sha256(n::text::bytea)
      from (select n, replace(gen_random_uuid()::text, '-', '') as random_id, ${days}::int * interval '1 day' as lifetime,
          to_timestamp(${from}::float8 / 1000 + n::float8 / ${perSecond}::int) as issued_at
        from generate_series(${first}::int, ${Math.min(first + step, count) - 1}::int) n) as row`;
  }
}

/** Issues at the rate until it is stopped. @returns stops it, and says how many were issued a second */
function keepIssuing(admin: postgres.Sql): () => Promise<number> {
  const started = performance.now();
  let isOver = false;
  let issued = 0;
  const issuing = (async () => {
    while (!isOver) {
      const due = Math.floor(((performance.now() - started) / 1000) * perSecond) - issued;
      if (due > 0) await issue(admin, Date.now(), due, 30);
      issued += Math.max(0, due);
      await setTimeout(100);
    }
    return (issued * 1000) / (performance.now() - started);
  })();
  return () => {
    isOver = true;
    return issuing;
  };
}

/** Authorizations that the processes have removed so far; one that is not up yet, none. */
async function removed(processes: number): Promise<number> {
  const counts = await Promise.all(
    Array.from({ length: processes }, async (_, place) => {
      const metrics = await fetch(`${managementOf(place)}/metrics`).then(
        (response) => response.text(),
        () => "",
      );
      return Number(
        /^gatepost_janitor_rows_total\{.*kind="authorizations".*\} (\d+)$/m.exec(metrics)?.[1] ?? 0,
      );
    }),
  );
  return counts.reduce((sum, count) => sum + count, 0);
}

/** What is on disk of the authorizations, and rows that vacuum has still to remove. */
async function tables(admin: postgres.Sql): Promise<string> {
  const [row] = await admin`
    select sum(pg_total_relation_size(relid)) as bytes, sum(n_dead_tup) as dead from pg_stat_user_tables
    where schemaname = 'auth' and relname like 'authorizations\\_%'`;
  return `${whole(Number(row?.["bytes"]) / 1e6)} MB, ${whole(Number(row?.["dead"]))} dead rows`;
}

interface World {
  readonly preparation: Preparation;
  /** A superuser. */
  readonly admin: postgres.Sql;
}

/** How many were removed by then. */
interface Moment {
  readonly at: number;
  readonly count: number;
}

/** Looks until so many are removed, or the limit is over. */
async function watch(processes: number, count: number): Promise<readonly Moment[]> {
  const moments: Moment[] = [];
  const until = performance.now() + limitMs;
  do {
    moments.push({ at: performance.now(), count: await removed(processes) });
    await setTimeout(250);
  } while ((moments.at(-1)?.count ?? 0) < count && performance.now() < until);
  return moments;
}

/** Removed a second, while the count grew between these shares of what was removed in all. */
function rateOf(moments: readonly Moment[], from: number, to: number): number {
  const all = moments.at(-1)?.count ?? 0;
  const first = moments.findLast(({ count }) => count <= all * from);
  const last = moments.find(({ count }) => count >= all * to);
  if (!first || !last || all === 0) return 0;
  return ((last.count - first.count) * 1000) / (last.at - first.at);
}

/** A row of the table. @returns authorizations removed a second */
async function measure(title: string, { preparation, admin }: World, processes: number, count: number) {
  await issue(admin, Date.now() - 32 * 86_400_000, count, 30);
  await admin`analyze auth.authorizations`;
  const watched = watch(processes, count);
  await using open = new AsyncDisposableStack();
  for (let place = 0; place < processes; place += 1) {
    const server = await startProduct(preparation, place, { JANITOR_INTERVAL_SECONDS: "1" });
    open.defer(() => server.stop());
  }
  await warmIntrospection(preparation);
  const stopIssuing = keepIssuing(admin);
  open.defer(async () => void (await stopIssuing()));
  const bystander = run(1, "load-open.ts", [
    "http",
    `${ports.http}`,
    basic(introspector),
    preparation.introspections,
    `${askedPerSecond}x${warmUpSeconds},${askedPerSecond}x${seconds}`,
  ]);
  const { phases }: { phases: { good: number; offered: number; p50: number; p99: number }[] } = JSON.parse(
    await bystander,
  );
  const moments = await watched;
  const asked = phases[1];
  print(
    [
      title.padEnd(34),
      whole(await stopIssuing()).padStart(8),
      whole(moments.at(-1)?.count ?? 0).padStart(10),
      whole(rateOf(moments, 0, 1)).padStart(10),
      whole(rateOf(moments, 0, 0.2)).padStart(9),
      whole(rateOf(moments, 0.8, 1)).padStart(8),
      `${asked?.p50.toFixed(1)} ms`.padStart(10),
      `${asked?.p99.toFixed(1)} ms`.padStart(9),
      `${whole(asked?.good ?? 0)} of ${whole(asked?.offered ?? 0)}`.padStart(15),
      ` ${await tables(admin)}`,
    ].join(" "),
  );
  return rateOf(moments, 0, 1);
}

const stopPostgresql = await providePostgresql({ durable: true });
if (!postgresUrl()) {
  print(`This measurement needs PostgreSQL. ${installPostgresql}`);
  process.exit(1);
}
const preparation = await prepare(known, () => undefined);
const url = requiredPostgresUrl();
url.pathname = `/${preparation.database.name}`;
const admin = postgres(url.href, { max: 2, onnotice: () => undefined });
try {
  const started = performance.now();
  print(
    `${"".padEnd(34)} issued/s   removed removed/s at first  at last   introspection: p50 p99     answered  on disk`,
  );
  const world = { preparation, admin };
  await measure("one process, nothing has expired", world, 1, 0);
  const rates = [
    await measure("one process", world, 1, third),
    await measure("four processes", world, 4, third),
  ];
  const dump = await admin.reserve();
  await dump`begin isolation level repeatable read`;
  await dump`select from auth.authorizations limit 1`;
  rates.push(await measure("one process, during a dump", world, 1, third));
  await dump`commit`;
  dump.release();
  const slowest = Math.min(...rates);
  print(
    `${whole(expired)} authorizations in ${whole((performance.now() - started) / 1000)} s with writing them. At the slowest, an hour of ` +
      `${whole(perSecond)}/s takes ${whole((perSecond * 3_600) / slowest)} s: ${slowest > perSecond ? "met" : "NOT met"}`,
  );
} finally {
  await admin.end();
  await preparation.database.drop();
  rmSync(preparation.directory, { recursive: true });
  await stopPostgresql();
}
