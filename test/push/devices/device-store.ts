/** What tests of devices share: a database of the push service, and what is in it. */
import { fromJson } from "@bufbuild/protobuf";
import { sql } from "drizzle-orm";
import { PushTokenRegisteredSchema, PushTokenRemovedSchema } from "../../../gen/proto/push/v1/events_pb.ts";
import type { Database, OpenDatabase } from "../../../src/platform/database/database.ts";
import { pushMigrations } from "../../../src/push/database.ts";
import { createDevices, type Devices } from "../../../src/push/devices/devices.ts";
import { type MovableClock, movableClock } from "../../support/movable-clock.ts";
import { rows } from "../../support/rows.ts";
import type { Backend } from "../../support/servers.ts";
import { createMigratedServiceDatabase, type ServiceDatabase } from "../../support/service-database.ts";

export interface DeviceRow extends Record<string, unknown> {
  readonly id: string;
  readonly userId: string;
  readonly provider: string;
  readonly token: string;
  readonly utcOffset: number;
  readonly timeZone: string | null;
  readonly language: string | null;
  readonly platform: string | null;
  readonly expires: number;
  readonly registered: number;
  readonly renewed: number;
}

export interface DeviceStore {
  readonly own: ServiceDatabase;
  readonly database: OpenDatabase;
  readonly db: Database;
  readonly clock: MovableClock;
  readonly devices: Devices;
  /** In the order of ids; times in milliseconds. */
  all(): Promise<DeviceRow[]>;
  /** The database's clock, in milliseconds. */
  now(): Promise<number>;
  /** Makes all devices registered and renewed so much earlier. */
  age(seconds: number): Promise<void>;
  /** Type and data of the events so far, checked against their schema and forgotten; in the order of writing. */
  events(): Promise<[type: string, data: Record<string, unknown>][]>;
  /** Removes devices, history, notifications and events. */
  clear(): Promise<void>;
}

/** Providers in use: tokens of `fcm` are words, those of `outbox` anything. */
export const providers = new Map([
  ["outbox" as const, { tokenProblem: () => undefined }],
  ["fcm" as const, { tokenProblem: (token: string) => (/^\w+$/.test(token) ? undefined : "must be a word") }],
]);
/** Devices that a user may have. */
export const maxPerUser = 20;

export async function createDeviceStore(backend: Backend): Promise<DeviceStore> {
  const own = await createMigratedServiceDatabase(backend, pushMigrations);
  const database = await own.open();
  const { db } = database;
  const clock = movableClock();
  return {
    own,
    database,
    db,
    clock,
    devices: createDevices({ db, clock, providers, defaultProvider: "outbox", maxPerUser }),
    async all() {
      const ms = (column: string) => sql`(extract(epoch from ${sql.identifier(column)}) * 1000)::float8`;
      const found = await rows<DeviceRow>(
        db,
        sql`
          select id::text, user_id as "userId", provider, token, utc_offset::int as "utcOffset", time_zone as "timeZone",
            language, platform,
            ${ms("expires_at")} as expires, ${ms("registered_at")} as registered, ${ms("renewed_at")} as renewed
          from push.devices order by devices.id`,
      );
      return found;
    },
    async now() {
      const [{ ms } = { ms: 0 }] = await rows<{ ms: number }>(
        db,
        sql`select (extract(epoch from clock_timestamp()) * 1000)::float8 as ms`,
      );
      return ms;
    },
    async age(seconds) {
      const by = sql`${seconds}::float8 * interval '1 second'`;
      await db.execute(sql`
        update push.devices set registered_at = registered_at - ${by}, renewed_at = renewed_at - ${by}`);
    },
    async events() {
      const found = await rows<{ type: string; subject: string; data: Record<string, unknown> }>(
        db,
        sql`with gone as (delete from push.outbox returning *) select type, subject, data from gone order by position`,
      );
      return found.map(({ type, subject, data }) => {
        const schema =
          type === "push.token.registered.v1" ? PushTokenRegisteredSchema : PushTokenRemovedSchema;
        const { userId } = fromJson(schema, JSON.parse(JSON.stringify(data)));
        if (userId !== subject) throw new Error(`the subject of an event of ${userId} is ${subject}`);
        return [type.replace(/^push\.token\.(.*)\.v1$/, "$1"), data];
      });
    },
    async clear() {
      for (const table of [
        "devices",
        "history_blocks",
        "history_views",
        "history_users",
        "notifications",
        "outbox",
      ]) {
        await db.execute(sql`delete from push.${sql.identifier(table)}`);
      }
    },
  };
}
