/**
 * The first half of planning: a history entry for each user who has a live device at one of the offsets. It walks
 * along the users, so that each comes up once and their entries are appended to the index in its own order.
 *
 * A device that comes to another user or offset while the walk goes on may be missed by it; the second half, which
 * visits each device once, records the users of devices that were registered or renewed since.
 */
import { type SQL, sql } from "drizzle-orm";
import { arrayLiteral, type Database, rows } from "../../platform/database/database.ts";
import type { ProviderName } from "../provider-settings.ts";

/** A step of planning, on a notification that is locked. */
export interface PlanningStep {
  readonly notificationId: string;
  readonly isTest: boolean;
  /** Devices to look at. */
  readonly window: number;
  /** Devices that have expired by then get nothing. */
  readonly at: SQL;
  /** Those in use: nobody would send to devices of others. */
  readonly providers: readonly ProviderName[];
}

/** Whether a device can be sent to. The walks see the others as well, and pass them by. */
export function isServed({ providers }: PlanningStep): SQL {
  return sql`provider = any(${arrayLiteral(providers)}::text[])`;
}

/** Writes the entries of the next users. @returns whether all have theirs */
export async function recordHistory(tx: Database, step: PlanningStep): Promise<boolean> {
  const { notificationId, isTest, window, at } = step;
  const limit = sql.raw(String(window));
  const isAfter = sql`(user_id, id) > ((select recorded_user from n), (select recorded_device from n))`;
  // The order and the limit make it walk along the index, whatever the statistics of the moment say.
  const next = isTest
    ? sql`select user_id, expires_at, ${isServed(step)} as is_asked from push.devices
          where user_id = any((select user_ids from n)::text[]) order by user_id`
    : sql`select user_id, expires_at,
            utc_offset = any((select utc_offsets from n)::smallint[]) and ${isServed(step)} as is_asked
          from push.devices where ${isAfter} order by user_id, id limit ${limit}`;
  const [recorded] = await rows<{ isDone: boolean }>(
    tx,
    sql`
      with n as materialized (
        select utc_offsets, user_ids, recorded_user, recorded_device from push.notifications
        where id = ${notificationId}::uuid
      ),
      edge as materialized (
        select user_id, id from push.devices
        where ${isAfter} and not ${isTest}::boolean order by user_id, id offset ${limit} - 1 limit 1
      ),
      entries as (
        insert into push.history (user_id, notification_id, viewed)
        select distinct user_id, ${notificationId}::uuid, false from (${next}) as seen
        where is_asked and expires_at > ${at}
          -- The user whose devices the last step has ended among has had the entry, perhaps.
          and (user_id <> (select recorded_user from n) or not exists (
            select from push.history
            where user_id = (select recorded_user from n) and notification_id = ${notificationId}::uuid))
        returning 1
      )
      update push.notifications as planned
      set recorded_user = coalesce(edge.user_id, planned.recorded_user),
        recorded_device = coalesce(edge.id, planned.recorded_device),
        recorded_at = case when edge.id is null then ${at} end,
        recipients = recipients + (select count(*) from entries)::int
      from n left join edge on true
      where planned.id = ${notificationId}::uuid
      returning recorded_at is not null as "isDone"`,
  );
  if (!recorded) throw new Error("the notification that is planned has gone, although it is locked");
  return recorded.isDone;
}
