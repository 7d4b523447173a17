/** What the tests of notifications stand on: a database of their own with jobs, devices, and looks at the tables. */
import { sql } from "drizzle-orm";
import { arrayLiteral, type Database, type OpenDatabase } from "../../../src/platform/database/database.ts";
import { createJobs, type Job, type Jobs } from "../../../src/platform/messaging/jobs.ts";
import {
  type FollowJob,
  followQueue,
  type PlanJob,
  planQueue,
  planRestQueue,
  pushJobTables,
  pushMigrations,
} from "../../../src/push/database.ts";
import { createFollower } from "../../../src/push/notifications/follow-chunks.ts";
import { createNotifications, type Notifications } from "../../../src/push/notifications/notifications.ts";
import { createPlanner } from "../../../src/push/notifications/plan-notification.ts";
import type { ProviderName } from "../../../src/push/provider-settings.ts";
import { type CapturedLog, captureLog } from "../../support/captured-log.ts";
import { historyEntries } from "../../support/history-rows.ts";
import { type MovableClock, movableClock } from "../../support/movable-clock.ts";
import { rows } from "../../support/rows.ts";
import type { Backend } from "../../support/servers.ts";
import { createMigratedServiceDatabase, type ServiceDatabase } from "../../support/service-database.ts";

export interface NewDevice {
  readonly userId: string;
  readonly utcOffset?: number;
  readonly provider?: ProviderName;
  /** From now; negative: it has expired. */
  readonly expiresInSeconds?: number;
}

export interface ChunkRow {
  readonly id: string;
  readonly provider: ProviderName;
  readonly utcOffset: number;
  /** As in the table; PARKED: PENDING, and without a job. */
  readonly state: string;
  readonly devices: number[];
  readonly planned: number;
  readonly dropped: number;
}

export interface Lab {
  readonly own: ServiceDatabase;
  readonly database: OpenDatabase;
  readonly db: Database;
  readonly jobs: Jobs;
  readonly clock: MovableClock;
  readonly log: CapturedLog;
  readonly notifications: Notifications;
  /** @returns ids, in the order given */
  addDevices(devices: readonly NewDevice[]): Promise<number[]>;
  /** Removes all devices, notifications, jobs and what belongs to them. */
  clear(): Promise<void>;
  accept(utcOffsets?: readonly number[]): Promise<string>;
  /** Takes jobs of the queue as a worker does, and gives each to the handler, until there is none. @returns how many */
  drain<Data extends object>(queue: string, handle: (job: Job<Data>) => Promise<void>): Promise<number>;
  /** Plans all that is to be planned. */
  plan(window?: number, providers?: readonly ProviderName[]): Promise<void>;
  /** Has all chunks follow their notifications. */
  follow(): Promise<void>;
  /** Takes the plan job, as a worker does. */
  takePlanJob(): Promise<Job<PlanJob>>;
  /** Data of the jobs that wait, in the order in which they are taken. */
  waiting(queue: string): Promise<Record<string, unknown>[]>;
  chunks(notificationId: string): Promise<ChunkRow[]>;
  /** Users with a history entry. */
  recipients(notificationId: string): Promise<string[]>;
  events(type: string): Promise<Record<string, unknown>[]>;
  drop(): Promise<void>;
}

/** Those in use, unless a test says otherwise. */
export const allProviders: readonly ProviderName[] = ["fcm", "apns", "webpush", "outbox"];

/** The user of test runs. */
export const testUser = "tester";
export const ttlSeconds = 3600;
export const never = new AbortController().signal;

export async function createLab(backend: Backend): Promise<Lab> {
  const own = await createMigratedServiceDatabase(backend, pushMigrations);
  const database = await own.open();
  const { db } = database;
  const log = captureLog();
  const clock = movableClock();
  const jobs = createJobs({ database, tables: pushJobTables, logger: log.logger });
  await jobs.start();
  const common = { db, jobs, clock };
  const notifications = createNotifications({
    ...common,
    ttlSeconds,
    testUserIds: [testUser],
    logger: log.logger,
  });

  async function take<Data extends object>(queue: string): Promise<Job<Data> | undefined> {
    const [job] = await rows<Job<Data> & Record<string, unknown>>(
      db,
      sql`
        update push_jobs.job set state = 'active', started_on = now(), heartbeat_on = now()
        where id = (
          select id from push_jobs.job where name = ${queue} and state < 'active'
          order by priority desc, created_on, id limit 1 for update skip locked)
        returning id::text, name as queue, data, retry_count as "retryCount", priority, source_id::text as "failedId"`,
    );
    return job;
  }

  const lab: Lab = {
    own,
    database,
    db,
    jobs,
    clock,
    log,
    notifications,
    async addDevices(devices) {
      const at = new Date(clock.now()).toISOString();
      const made = await rows<{ id: string }>(
        db,
        sql`
          insert into push.devices (user_id, provider, token, token_hash, utc_offset, expires_at, registered_at, renewed_at)
          select user_id, provider, token, sha256(token::bytea), utc_offset,
            ${at}::timestamptz + make_interval(secs => expires), ${at}::timestamptz, ${at}::timestamptz
          from (
            select t.*, gen_random_uuid()::text as token
            from unnest(${arrayLiteral(devices.map(({ userId }) => userId))}::text[],
              ${arrayLiteral(devices.map(({ provider = "outbox" }) => provider))}::text[],
              ${arrayLiteral(devices.map(({ utcOffset = 0 }) => String(utcOffset)))}::smallint[],
              ${arrayLiteral(devices.map(({ expiresInSeconds = 86_400 }) => String(expiresInSeconds)))}::float8[]
            ) with ordinality as t (user_id, provider, utc_offset, expires, place)
            order by place
          ) as made
          returning id::text`,
      );
      return made.map(({ id }) => Number(id));
    },
    async clear() {
      for (const table of [
        "devices",
        "notifications",
        "history_blocks",
        "history_users",
        "delivery_chunks",
        "plan_ranges",
        "idempotency_keys",
        "test_runs",
      ])
        await db.execute(sql`delete from push.${sql.identifier(table)}`);
      await db.execute(sql`delete from push.outbox`);
      await db.execute(sql`delete from push_jobs.job`);
    },
    async accept(utcOffsets = [0]) {
      const send = { title: "Title", message: "Message", image: null, utcOffsets };
      return (await notifications.accept("backoffice", send, undefined)).notificationId;
    },
    async drain<Data extends object>(queue: string, handle: (job: Job<Data>) => Promise<void>) {
      let count = 0;
      for (let job = await take<Data>(queue); job; job = await take<Data>(queue)) {
        await handle(job);
        count += 1;
      }
      return count;
    },
    async plan(window, providers = allProviders) {
      const planner = createPlanner({ ...common, providers, ...(window !== undefined && { window }) });
      for (let count = 1; count > 0; ) {
        count = await lab.drain<PlanJob>(planQueue, planner.handle);
        count += await lab.drain<PlanJob>(planRestQueue, planner.handle);
      }
    },
    async follow() {
      await lab.drain<FollowJob>(followQueue, createFollower(common));
    },
    async takePlanJob() {
      const job = (await take<PlanJob>(planQueue)) ?? (await take<PlanJob>(planRestQueue));
      if (!job) throw new Error("there is no plan job");
      return job;
    },
    async waiting(queue) {
      const found = await rows<{ data: Record<string, unknown> }>(
        db,
        sql`
          select data from push_jobs.job where name = ${queue} and state < 'active'
          order by priority desc, created_on, id`,
      );
      return found.map(({ data }) => data);
    },
    async chunks(notificationId) {
      const found = await rows<{
        id: string;
        provider: ProviderName;
        utcOffset: number;
        state: string;
        devices: string;
        planned: number;
        dropped: number;
      }>(
        db,
        sql`
          select id::text, provider, utc_offset as "utcOffset",
            case when state = 'PENDING' and job_id is null then 'PARKED' else state end as state, array_to_string(device_ids, ',') as devices,
            planned, dropped
          from push.delivery_chunks c where notification_id = ${notificationId}::uuid order by c.id`,
      );
      return found.map((row) => ({
        ...row,
        devices: row.devices === "" ? [] : row.devices.split(",").map(Number),
      }));
    },
    async recipients(notificationId) {
      const found = await rows<{ user: string }>(
        db,
        sql`select user_id as user from ${historyEntries} where notification_id = ${notificationId}::uuid order by user_id`,
      );
      return found.map(({ user }) => user);
    },
    async events(type) {
      const found = await rows<{ data: Record<string, unknown> }>(
        db,
        sql`select data from push.outbox where type = ${type} order by position`,
      );
      return found.map(({ data }) => data);
    },
    async drop() {
      await jobs.stop();
      await own.drop();
    },
  };
  return lab;
}
