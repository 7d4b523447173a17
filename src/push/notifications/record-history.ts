/**
 * The first half of planning: a history entry for each user who has a live device at one of the offsets. It walks the
 * devices in the order of users, so that it meets each user once and appends the entries in the order of the index.
 *
 * The walk may miss a device that moves to another user or offset meanwhile. The second half, which visits each device
 * once, writes the entries for devices that were registered or renewed since acceptance.
 */
import { type SQL, sql } from "drizzle-orm";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { boolean } from "../../platform/database/readers.ts";
import { computed, rows, selection } from "../../platform/database/statements.ts";
import type { ProviderName } from "../provider-settings.ts";
import { devices, history, notifications } from "../schema.ts";
import { offsetIn, type ZoneOffsets } from "./zone-offsets.ts";

const notification = names(notifications);
const device = names(devices);
const entry = names(history);
const edge = names(devices, "edge");
/** The notification's row as the statement writes it; `n` is the row as it was before. */
const planned = names(notifications, "planning");

/** A step of planning; the notification is locked. */
export interface PlanningStep {
  readonly notificationId: string;
  readonly isTest: boolean;
  /** Devices to visit. */
  readonly window: number;
  /** The time of the step: devices that have expired by then are no recipients. */
  readonly at: SQL;
  /** The providers in use; no worker would send to devices of other providers. */
  readonly providers: readonly ProviderName[];
  readonly zones: ZoneOffsets;
}

/** Whether the device's provider is in use. Planning visits the other devices too, but does not plan them. */
export function isServed({ providers }: PlanningStep): SQL {
  return sql`${device.provider} = any(${arrayLiteral(providers)}::text[])`;
}

const progress = selection({ isDone: computed(boolean, sql`${planned.recordedAt} is not null`) });

/** Writes the entries of the next users. @returns whether all recipients have their entries */
export async function recordHistory(tx: Database, step: PlanningStep): Promise<boolean> {
  const { notificationId, isTest, window, at } = step;
  const limit = sql.raw(String(window));
  const { userId, id, expiresAt } = device;
  const recordedUser = sql`(select ${notification.recordedUser} from n)`;
  const isAfter = sql`(${userId}, ${id}) > (${recordedUser}, (select ${notification.recordedDevice} from n))`;
  // The order and the limit make PostgreSQL use the index, whatever its statistics are at the moment.
  const next = isTest
    ? sql`select ${userId}, ${expiresAt}, ${isServed(step)} as is_target from ${devices}
          where ${userId} = any((select ${notification.userIds} from n)::text[]) order by ${userId}`
    : sql`select ${userId}, ${expiresAt},
            ${offsetIn(step.zones)} = any((select ${notification.utcOffsets} from n)::smallint[]) and ${isServed(step)} as is_target
          from ${devices} where ${isAfter} order by ${userId}, ${id} limit ${limit}`;
  const [recorded] = await rows(
    tx,
    progress,
    sql`
      with n as materialized (
        select ${notification.utcOffsets}, ${notification.userIds}, ${notification.recordedUser},
          ${notification.recordedDevice}
        from ${notifications} where ${notification.id} = ${notificationId}::uuid
      ),
      edge as materialized (
        select ${userId}, ${id} from ${devices}
        where ${isAfter} and not ${isTest}::boolean order by ${userId}, ${id} offset ${limit} - 1 limit 1
      ),
      entries as (
        insert into ${history} (${entry.userId}, ${entry.notificationId}, ${entry.viewed})
        select distinct ${userId}, ${notificationId}::uuid, false from (${next}) as seen
        where is_target and ${expiresAt} > ${at}
          -- The last step may have ended among a user's devices; that user may have the entry already.
          and (${userId} <> ${recordedUser} or not exists (
            select from ${history}
            where ${entry.userId} = ${recordedUser} and ${entry.notificationId} = ${notificationId}::uuid))
        returning 1
      )
      update ${notifications} as planning
      set ${notification.recordedUser} = coalesce(${edge.userId}, ${planned.recordedUser}),
        ${notification.recordedDevice} = coalesce(${edge.id}, ${planned.recordedDevice}),
        ${notification.recordedAt} = case when ${edge.id} is null then ${at} end,
        ${notification.recipients} = ${planned.recipients} + (select count(*) from entries)::int
      from n left join edge on true
      where ${planned.id} = ${notificationId}::uuid
      returning ${progress}`,
  );
  if (!recorded) throw new Error("the notification that is planned is missing, although it is locked");
  return recorded.isDone;
}
