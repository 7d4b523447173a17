/**
 * `npm run bench:waiting`: what waits costs nobody. How long a take of another provider's or notification's chunk lasts
 * beside many chunks that wait, how much an idle process asks the database, and what a broadcast gets beside small
 * sends at the ceiling of the rate. On a PostgreSQL of its own.
 *
 *   BENCH_WAITING=100000   chunks that wait
 *   BENCH_MINUTES=10       of an open transaction, with 500 sends of one chunk a second
 */
import { setTimeout } from "node:timers/promises";
import { type SQL, sql } from "drizzle-orm";
import postgres from "postgres";
import { usageIn } from "../../scripts/command.ts";
import { readArguments } from "../../src/command.ts";
import { WakeUps } from "../../src/platform/base/loop.ts";
import { uuidv7 } from "../../src/platform/crypto/random.ts";
import type { OpenDatabase } from "../../src/platform/database/database.ts";
import { openDatabase } from "../../src/platform/database/open.ts";
import { createLogger } from "../../src/platform/observability/logger.ts";
import { createMetrics } from "../../src/platform/observability/metrics.ts";
import { pushMigrations } from "../../src/push/database.ts";
import { startDelivery } from "../../src/push/delivery/delivery.ts";
import { setAside } from "../../src/push/notifications/follow-chunks.ts";
import type { PushProvider } from "../../src/push/providers/provider.ts";
import { Processes } from "../../src/push/queue/processes.ts";
import { ChunkTaker } from "../../src/push/queue/take-chunks.ts";
import type { Work } from "../../src/push/queue/work.ts";
import { createTestDatabase, postgresSettings } from "../support/backends.ts";
import { installPostgresql } from "../support/postgresql/binaries.ts";
import { postgresUrl, providePostgresql, requiredPostgresUrl } from "../support/postgresql/server.ts";
import { rows } from "../support/rows.ts";

readArguments({ usage: usageIn(import.meta.filename), options: {} });

const waiting = Number(process.env["BENCH_WAITING"] ?? 100_000);
const minutes = Number(process.env["BENCH_MINUTES"] ?? 10);
const perSecond = 500;

const print = (line: string) => process.stdout.write(`${line}\n`);
const logger = createLogger({ level: "error", environment: "production" });

/** A provider that accepts all, and counts by the notification. */
function counting(accepted: Map<string, number>): PushProvider {
  return {
    name: "fcm",
    maxInFlight: 500,
    tokenProblem: () => undefined,
    prepare({ notificationId }) {
      return async () => {
        accepted.set(notificationId, (accepted.get(notificationId) ?? 0) + 1);
        return { kind: "sent" };
      };
    },
    close: async () => undefined,
  };
}

async function notify({ db }: OpenDatabase, state: string, chunks: number): Promise<string> {
  const id = uuidv7(Date.now());
  await db.execute(sql`
    insert into push.notifications (id, title, message, utc_offsets, state, accepted_at, expires_at, planned_at, chunks)
    values (${id}::uuid, 't', 'm', '{0}', ${state}, now(), now() + interval '1 day', now(), ${chunks}::int)`);
  return id;
}

/** Inserts chunks of one device each. */
async function add(
  { db }: OpenDatabase,
  id: SQL,
  provider: string,
  count: number,
  turn = 1_000,
): Promise<void> {
  await db.execute(sql`
    insert into push.delivery_chunks (notification_id, provider, utc_offset, turn, device_ids, planned)
    select ${id}, ${provider}, 0, ${turn}::int, array[n], 1 from generate_series(1, ${count}::int) n`);
}

/** A connection as the owner of the database. */
function connectAsOwner() {
  const at = new URL(requiredPostgresUrl());
  at.pathname = `/${settings.name}`;
  const owner = postgres(at.href, { max: 1, onnotice: () => undefined });
  return { owner, [Symbol.asyncDispose]: () => owner.end() };
}

async function clear(): Promise<void> {
  await using connection = connectAsOwner();
  await connection.owner`
    truncate push.delivery_chunks, push.notifications, push.provider_states, push.processes, push.outbox`;
}

/** @returns the median of the milliseconds that takes last, each of one chunk that has just been added */
async function takes(database: OpenDatabase, taker: ChunkTaker, times = 200): Promise<number> {
  const id = await notify(database, "SENDING", times);
  const lasted: number[] = [];
  for (let time = 0; time < times; time += 1) {
    await add(database, sql`${id}::uuid`, "fcm", 1, 0);
    const began = performance.now();
    let found = 0;
    while (found === 0) {
      for (const chunk of await taker.take(1, { chunks: 1, retries: 1 }, [])) {
        if (chunk.notificationId === id) found += 1;
        else await setAside(database.db, chunk);
      }
    }
    lasted.push(performance.now() - began);
    await database.db.execute(sql`
      update push.delivery_chunks set state = 'DONE', process_id = null, device_ids = '{}', sent = 1
      where notification_id = ${id}::uuid and state = 'TAKEN'`);
  }
  return lasted.sort((a, b) => a - b)[Math.floor(times / 2)] ?? 0;
}

async function scenario(database: OpenDatabase, name: string, prepare: () => Promise<void>): Promise<void> {
  await clear();
  const { db, leases } = database;
  // None of these processes beats: it would be taken for dead meanwhile.
  const taker = () =>
    new ChunkTaker(db, new Processes({ db, leases, logger, released: () => undefined }), "fcm");
  const empty = await takes(database, taker());
  await prepare();
  const beside = await takes(database, taker());
  print(
    `${name.padEnd(64)} ${beside.toFixed(2)} ms, empty ${empty.toFixed(2)} ms: ${(beside / empty).toFixed(2)}`,
  );
}

function start(database: OpenDatabase, provider: PushProvider, maxPerSecond: number) {
  return startDelivery({
    ...{ database, wakeUps: new WakeUps<Work>(), logger, metrics: createMetrics("gatepost", "bench") },
    providers: new Map([[provider.name, provider]]),
    settings: { maxPerSecond, rampSeconds: 0, maxDeadPercent: 10, removalDelaySeconds: 3_600 },
    completion: { ifDone: async () => 0, lock: async () => 0, inTransaction: async () => 0 },
  });
}

async function idle(database: OpenDatabase): Promise<void> {
  const worker = start(database, counting(new Map()), 0);
  const transactions = async () =>
    (
      await rows<{ count: number }>(
        database.db,
        sql`select xact_commit::int as count from pg_stat_database where datname = current_database()`,
      )
    )[0]?.count ?? 0;
  await setTimeout(3_000);
  const before = await transactions();
  await setTimeout(10_000);
  print(`Transactions a second of an idle process, one provider: ${((await transactions()) - before) / 10}`);
  await worker.stop();
}

/** Small sends at the rate, for so long. */
async function smallSends(database: OpenDatabase, seconds: number): Promise<void> {
  const began = performance.now();
  for (let second = 0; second < seconds; second += 1) {
    const id = await notify(database, "SENDING", perSecond);
    await add(database, sql`${id}::uuid`, "fcm", perSecond, 0);
    await setTimeout(Math.max(0, began + (second + 1) * 1_000 - performance.now()));
  }
}

async function devices({ db }: OpenDatabase, count: number): Promise<void> {
  await db.execute(sql`
    insert into push.devices (id, user_id, provider, token, token_hash, utc_offset, expires_at, registered_at, renewed_at)
    select n, 'user-' || n, 'fcm', 'token-' || n, sha256(n::text::bytea), 0, now() + interval '1 day', now(), now()
    from generate_series(1, ${count}::int) n`);
}

async function broadcast(database: OpenDatabase): Promise<void> {
  await clear();
  const accepted = new Map<string, number>();
  const id = await notify(database, "SENDING", 200);
  await database.db.execute(sql`
    insert into push.delivery_chunks (notification_id, provider, utc_offset, turn, device_ids, planned)
    select ${id}::uuid, 'fcm', 0, 1000 + c, array(select generate_series(1, 500)::bigint), 500
    from generate_series(1, 200) c`);
  const worker = start(database, counting(accepted), perSecond);
  await smallSends(database, 30);
  await worker.stop();
  const all = [...accepted.values()].reduce((sum, one) => sum + one, 0);
  const share = ((accepted.get(id) ?? 0) / all) * 100;
  print(
    `A broadcast beside ${perSecond} small sends a second, at a rate of ${perSecond}: ${share.toFixed(0)} % of ${all}`,
  );
}

const stopPostgresql = await providePostgresql({ durable: true });
if (!postgresUrl()) {
  print(`This measurement needs PostgreSQL. ${installPostgresql}`);
  process.exit(1);
}
const holder = await createTestDatabase();
const settings = { ...postgresSettings(holder), poolSize: 10 };
const database = await openDatabase(settings, pushMigrations);
await database.migrate();
await devices(database, 2_000);

await scenario(database, `${waiting} chunks of a paused provider`, async () => {
  await database.db.execute(sql`
    insert into push.provider_states (provider, next_at, share, failures, cause, paused_until)
    values ('apns', now(), 1, 1, 'unavailable', now() + interval '1 hour')`);
  await add(database, sql`'${sql.raw(await notify(database, "SENDING", waiting))}'::uuid`, "apns", waiting);
});
await scenario(database, `${waiting} chunks of a paused notification`, async () => {
  await add(database, sql`'${sql.raw(await notify(database, "PAUSED", waiting))}'::uuid`, "fcm", waiting);
});
await scenario(database, "10000 open notifications of a chunk each", async () => {
  await database.db.execute(sql`
    with made as (
      insert into push.notifications (id, title, message, utc_offsets, state, accepted_at, expires_at, planned_at, chunks)
      select gen_random_uuid(), 't', 'm', '{0}', 'SENDING', now(), now() + interval '1 day', now(), 1
      from generate_series(1, 10000) returning id
    )
    insert into push.delivery_chunks (notification_id, provider, utc_offset, turn, state, due_at, device_ids, planned)
    select id, 'fcm', 0, 0, 'WAITING', now() + interval '1 day', '{1}', 1 from made`);
});
await clear();
await idle(database);
await broadcast(database);
if (minutes > 0) {
  await using holding = connectAsOwner();
  await scenario(
    database,
    `${minutes} minutes of an open transaction, ${perSecond} small sends a second`,
    async () => {
      await holding.owner.unsafe("begin isolation level repeatable read; select count(*) from push.devices");
      const worker = start(database, counting(new Map()), 0);
      await smallSends(database, minutes * 60);
      await worker.stop();
    },
  );
}
await database.close();
await holder.drop();
await stopPostgresql();
