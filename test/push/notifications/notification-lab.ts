/** What the tests of notifications stand on: a database of their own, devices, and looks at the tables. */
import { sql } from "drizzle-orm";
import { WakeUps } from "../../../src/platform/base/loop.ts";
import { arrayLiteral, type Database, type OpenDatabase } from "../../../src/platform/database/database.ts";
import { pushMigrations } from "../../../src/push/database.ts";
import { createFollower } from "../../../src/push/notifications/follower.ts";
import { createNotifications, type Notifications } from "../../../src/push/notifications/notifications.ts";
import { createPlanner } from "../../../src/push/notifications/plan-notification.ts";
import { RangeTaker, type TakenRange } from "../../../src/push/notifications/ranges.ts";
import type { ProviderName } from "../../../src/push/provider-settings.ts";
import type { Work } from "../../../src/push/queue/work.ts";
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
  readonly state: string;
  readonly devices: number[];
  readonly planned: number;
  readonly dropped: number;
}

export interface Lab {
  readonly own: ServiceDatabase;
  readonly database: OpenDatabase;
  readonly db: Database;
  readonly wakeUps: WakeUps<Work>;
  readonly clock: MovableClock;
  readonly log: CapturedLog;
  readonly notifications: Notifications;
  /** As another process has them. */
  notificationsOf(db: Database): Notifications;
  /** @returns ids, in the order given */
  addDevices(devices: readonly NewDevice[]): Promise<number[]>;
  /** Removes all devices, notifications and what belongs to them. */
  clear(): Promise<void>;
  accept(utcOffsets?: readonly number[]): Promise<string>;
  /** Plans all that is due. */
  plan(window?: number, providers?: readonly ProviderName[]): Promise<void>;
  /** Has all chunks follow their notifications that are to be followed, and replays what is to be replayed. */
  follow(): Promise<void>;
  /** Does what was left undone, as the follower does at an interval. */
  sweep(): Promise<void>;
  /** Takes a range, as a worker does. */
  takeRange(): Promise<TakenRange>;
  /** Makes all ranges due that are not parked, as if a minute had gone by. */
  makeDue(): Promise<void>;
  /** The ids of the chunks of the provider that are READY, in the order in which they are taken. */
  ready(provider?: ProviderName): Promise<string[]>;
  /** Takes a chunk, as a process that sends. @returns the attempt's id */
  takeChunk(id: string | undefined): Promise<string>;
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
  const wakeUps = new WakeUps<Work>();
  const common = { db, wakeUps, clock, logger: log.logger };
  const follower = createFollower({ ...common, intervalSeconds: Number.MAX_SAFE_INTEGER });
  // It looks for what was left undone now, and no more.
  await follower.round();
  const { follow } = follower;
  const notificationsOf = (db: Database) =>
    createNotifications({ ...common, db, follow, ttlSeconds, testUserIds: [testUser] });

  const takeRange = async () => (await new RangeTaker(db).take([-1, 0, 1]))?.range;

  const lab: Lab = {
    own,
    database,
    db,
    wakeUps,
    clock,
    log,
    notifications: notificationsOf(db),
    notificationsOf,
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
            ) with ordinality as t (user_id, provider, utc_offset, expires, nth)
            order by nth
          ) as made
          returning id::text`,
      );
      return made.map(({ id }) => Number(id));
    },
    async clear() {
      for (const table of [
        "devices",
        "notifications",
        "notification_users",
        "history_blocks",
        "history_entries",
        "history_users",
        "delivery_chunks",
        "plan_ranges",
        "idempotency_keys",
        "test_runs",
        "replays",
        "processes",
        "outbox",
      ])
        await db.execute(sql`delete from push.${sql.identifier(table)}`);
    },
    async accept(utcOffsets = [0]) {
      const send = { title: "Title", message: "Message", image: null, utcOffsets };
      return (await lab.notifications.accept("backoffice", send, undefined)).notificationId;
    },
    async plan(window, providers = allProviders) {
      const plan = createPlanner({ ...common, providers, window });
      for (let range = await takeRange(); range; range = await takeRange()) await plan(range);
    },
    async follow() {
      while (await follower.round());
    },
    async sweep() {
      const sweeping = createFollower(common);
      while (await sweeping.round());
    },
    async takeRange() {
      return (await takeRange()) ?? Promise.reject(new Error("no range is due"));
    },
    async makeDue() {
      await db.execute(sql`update push.plan_ranges set due_at = now() where due_at < 'infinity'`);
    },
    async ready(provider = "outbox") {
      const found = await rows<{ id: string }>(
        db,
        sql`
          select id::text from push.delivery_chunks c where provider = ${provider} and state = 'READY'
          order by is_retry, turn, c.id`,
      );
      return found.map(({ id }) => id);
    },
    async takeChunk(id) {
      const [taken] = await rows<{ attempt: string }>(
        db,
        sql`
          with holder as (insert into push.processes (id) values (gen_random_uuid()) returning id)
          update push.delivery_chunks
          set state = 'TAKEN', process_id = (select id from holder), attempt = gen_random_uuid(), takes = takes + 1
          where id = ${id ?? ""}::bigint returning attempt::text`,
      );
      return taken?.attempt ?? Promise.reject(new Error("there is no such chunk"));
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
            state, array_to_string(device_ids, ',') as devices, planned, dropped
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
    drop: () => own.drop(),
  };
  return lab;
}
