import { and, eq, getTableName, isNotNull, lt, type SQL, sql } from "drizzle-orm";
import { lowestUuidv7 } from "../../platform/crypto/random.ts";
import { confirmUnless } from "../../platform/database/confirm.ts";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { integer, names } from "../../platform/database/sql/readers.ts";
import { computed, epochMs, isAmong, rows, selection } from "../../platform/database/sql/statements.ts";
import { noRequest, originFields } from "../../platform/messaging/outbox.ts";
import { PushEvents, type RemovalReason, recordEvent, removalReasonName } from "../events.ts";
import { planLock, userLocks } from "../history/history-blocks.ts";
import { forgetHistory } from "../history/remove-history.ts";
import { messageOutcomes, notificationUsers } from "../recipients-schema.ts";
import { deadReports } from "../removals-schema.ts";
import { devices } from "../schema.ts";

const { id, userId, provider, tokenHash, renewedAt, authorizationId } = names(devices);
const removal = selection({ count: computed(integer, sql`(select count(*)::int from removed)`) });

/** A query for {@link removeDevices}: the devices for which a condition holds. @param limit a `limit` clause */
export const devicesWhere = (which: SQL, limit = sql``): SQL => sql`
  select ${tokenHash} as chosen_hash from ${devices} where ${which} order by ${id} ${limit} for update`;

/** Reasons whose removals are reported: to a caller, or to the broker, which then forgets the event. */
const confirmedReasons: ReadonlySet<RemovalReason> = new Set(["USER", "AUTHORIZATION_REVOKED"]);

/**
 * Removes devices and writes an event for each, in one statement. Once it resolves, the removal is confirmed by the
 * standbys that commits wait for; for some reasons also if the devices had been removed before.
 * @param chosen query for the hashes of their tokens as `chosen_hash`, which locks the rows in the order of ids
 * @param origin the request that removes them; none unless given
 * @returns how many were removed
 */
export async function removeDevices(
  db: Database,
  chosen: SQL,
  reason: RemovalReason,
  origin = noRequest,
): Promise<number> {
  const confirming = confirmedReasons.has(reason)
    ? sql`, ${confirmUnless(sql`exists (select from removed)`)}`
    : sql``;
  const [result] = await rows(
    db,
    removal,
    sql`
      with chosen as (${chosen}
      ), removed as (
        delete from ${devices} where ${isAmong(tokenHash, sql`select chosen_hash from chosen`)}
        returning ${id}, ${userId}, ${provider}
      ), recorded as (${recordEvent(
        PushEvents.tokenRemoved,
        {
          userId,
          deviceId: sql`${id}::text`,
          provider,
          reason: sql`${removalReasonName(reason)}::text`,
          ...originFields(origin),
        },
        { from: sql`from removed` },
      )})
      select ${removal}${confirming}`,
  );
  return result?.count ?? 0;
}

/** A device that its provider reports dead. */
export interface DeadDevice {
  readonly deviceId: number;
  /** Milliseconds since the epoch as of which the provider reports it dead. */
  readonly asOf: number;
}

/** Removes dead devices, but for those that were renewed at `asOf` or later. @returns how many were removed */
export async function removeDeadDevices(tx: Database, dead: readonly DeadDevice[]): Promise<number> {
  if (dead.length === 0) return 0;
  const ids = arrayLiteral(dead.map(({ deviceId }) => deviceId));
  const moments = arrayLiteral(dead.map(({ asOf }) => asOf));
  const chosen = sql`
    select ${tokenHash} as chosen_hash from ${devices}
    join unnest(${ids}::bigint[], ${moments}::float8[]) as report (dead_id, dead_since) on ${id} = dead_id
    where ${epochMs(renewedAt)} < dead_since
    order by ${id} for update of ${sql.identifier(getTableName(devices))}`;
  return removeDevices(tx, chosen, "DEAD");
}

/**
 * Removes the devices of a user that were last registered with this authorization, which has ended. Can be repeated.
 */
export async function removeSignedOut(db: Database, user: string, authorization: string): Promise<void> {
  const isSignedOut = sql`${userId} = ${user} and ${authorizationId} = ${authorization}`;
  await removeDevices(db, devicesWhere(isSignedOut), "AUTHORIZATION_REVOKED");
}

/** Seconds by which the clock of push's database may be ahead of that of the auth service. */
const clockSeconds = 60;

/**
 * Removes a user's devices and history for good. Can be repeated. Devices that were renewed after the deletion stay, as
 * a new user's with the same id, and then entries of notifications that were accepted since, too.
 * @param tx a transaction
 */
export async function forgetUser(tx: Database, user: string, deletedAt: Date): Promise<void> {
  // A step of planning that ran meanwhile could write history for a device that it read before.
  await planLock.exclusive(tx);
  await tx.execute(userLocks.exclusive([user]));
  const renewedSince = new Date(deletedAt.getTime() + clockSeconds * 1000);
  const isOfDeleted = sql`${userId} = ${user} and ${renewedAt} <= ${renewedSince.toISOString()}::timestamptz`;
  // The storing of results has a user's name before his device's report.
  const isOfUser = eq(notificationUsers.userId, user);
  await tx.select({ one: notificationUsers.position }).from(notificationUsers).where(isOfUser).for("update");
  // The reports come before the devices, as they do where dead devices are removed, so that there is no deadlock. They
  // come after the lock, as the holder of a notification that a step of planning waits for may wait for a report.
  await tx.execute(sql`delete from ${deadReports} where ${eq(deadReports.userId, user)}`);
  await removeDevices(tx, devicesWhere(isOfDeleted), "IDENTITY_DELETED");
  const left = await tx.$count(devices, eq(devices.userId, user));
  const keptFrom = left > 0 ? renewedSince : undefined;
  // Who is back stays named, but for values that were his, or a device of his could be planned on both axes.
  const isGone = keptFrom && isNotNull(notificationUsers.variables);
  await tx.delete(notificationUsers).where(and(isOfUser, isGone, before(notificationUsers, keptFrom)));
  await tx
    .delete(messageOutcomes)
    .where(and(eq(messageOutcomes.userId, user), before(messageOutcomes, keptFrom)));
  await forgetHistory(tx, user, keptFrom);
}

/** A condition: the notification was accepted before this moment; undefined: whenever. */
const before = (table: typeof notificationUsers | typeof messageOutcomes, moment: Date | undefined) =>
  moment && lt(table.notificationId, lowestUuidv7(moment.getTime()));
