/** How fast planning is, beside the one statement that it could be if nothing had to survive and nobody had to wait. */
import { setTimeout } from "node:timers/promises";
import { sql } from "drizzle-orm";
import postgres from "postgres";
import { systemClock } from "../../src/platform/base/clock.ts";
import { WakeUps } from "../../src/platform/base/loop.ts";
import type { OpenDatabase } from "../../src/platform/database/database.ts";
import { rowCount } from "../../src/platform/database/sql/statements.ts";
import { createLogger } from "../../src/platform/observability/logger.ts";
import { createNotifications } from "../../src/push/notifications/notifications.ts";
import { startPlanners } from "../../src/push/notifications/plan-notification.ts";
import type { Work } from "../../src/push/queue/work.ts";
import { worldOffsets } from "../support/send-audience.ts";

export interface PlanningFigures {
  /** Recipients a second, with their history, the chunks and all that makes planning safe. */
  readonly perSecond: number;
  /** The same for the first notification that they ever get, with which they get their numbers in the history. */
  readonly firstPerSecond: number;
  /** Rows a second of an `INSERT … SELECT` that writes a row for each recipient, with the indexes to find it by. */
  readonly rawPerSecond: number;
}

/** Plans two notifications to all, in this process, then takes away what they have left. */
export async function measurePlanning(database: OpenDatabase, adminUrl: string): Promise<PlanningFigures> {
  const admin = postgres(adminUrl, { max: 1, onnotice: () => undefined });
  try {
    const raw = await insertSelect(admin);
    const first = await planToAll(database);
    await admin`vacuum analyze`;
    const second = await planToAll(database);
    await admin`
      truncate push.history_users, push.history_blocks, push.delivery_chunks, push.plan_ranges, push.notifications,
        push.outbox`;
    await admin`vacuum analyze`;
    return { perSecond: perSecond(second), firstPerSecond: perSecond(first), rawPerSecond: perSecond(raw) };
  } finally {
    await admin.end();
  }
}

interface Taken {
  readonly recipients: number;
  readonly ms: number;
}
const perSecond = ({ recipients, ms }: Taken) => (recipients / ms) * 1000;

async function insertSelect(admin: postgres.Sql): Promise<Taken> {
  await admin`
    create table bench_history (user_id text collate "C" not null, notification_id uuid not null,
      viewed boolean not null, viewed_at timestamptz(3), primary key (user_id, notification_id))`;
  await admin`create index on bench_history (user_id) where not viewed`;
  await admin`create index on bench_history (notification_id nulls first)`;
  const started = performance.now();
  const result = await admin`
    insert into bench_history (user_id, notification_id, viewed)
    select distinct user_id, '01a1fbed-5406-75c4-8086-4b2a0b3a0db7'::uuid, false from push.devices
    where utc_offset = any(${admin.array([...worldOffsets])}::smallint[]) and expires_at > now()`;
  const ms = performance.now() - started;
  await admin`drop table bench_history`;
  return { recipients: result.count, ms };
}

/** Plans a notification to all devices, in this process, from the first step to the last. */
export async function planToAll(database: OpenDatabase): Promise<Taken> {
  const { db } = database;
  const logger = createLogger({ level: "error", environment: "production" });
  const common = { db, wakeUps: new WakeUps<Work>(), clock: systemClock, logger };
  const follow = () => undefined;
  const notifications = createNotifications({ ...common, follow, ttlSeconds: 3600, testUserIds: [] });
  const content = { title: "Good morning", message: "The shop opens at nine.", image: null };
  const send = { ...content, utcOffsets: worldOffsets };
  const { notificationId } = await notifications.accept("bench", send, undefined);
  const started = performance.now();
  const workers = startPlanners({ ...common, providers: ["fcm", "apns", "webpush", "outbox"] });
  // The progress is summed over all chunks; this look takes next to nothing from what is measured.
  const isPlanning = sql`select 1 from push.notifications where id = ${notificationId}::uuid and state = 'PLANNING'`;
  while ((await rowCount(db, isPlanning)) > 0) await setTimeout(5);
  const ms = performance.now() - started;
  const { recipients } = await notifications.get(notificationId);
  await Promise.all(workers.map((worker) => worker.stop()));
  return { recipients, ms };
}
