/**
 * Plans a small notification within the transaction that accepts it, so that its first message goes out at once: it
 * takes no turn, walks over no zones, and waits for nobody.
 */
import { sql } from "drizzle-orm";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { boolean, integer, names } from "../../platform/database/sql/readers.ts";
import {
  arrayItems,
  computed,
  onlyRow,
  prepared,
  selection,
} from "../../platform/database/sql/statements.ts";
import type { Delivery } from "../content/content.ts";
import { userLocks } from "../history/history-blocks.ts";
import type { ProviderName } from "../provider-settings.ts";
import { devices, notifications, planRanges } from "../schema.ts";
import { type Audience, includedUsers, kindOf } from "./audience.ts";
import { completeNotification } from "./complete-notification.ts";
import { asksForOffsets } from "./device-filters.ts";
import { planUsers, usersOfStep } from "./plan-audience.ts";

/** The most users, and the most of their devices. */
const most = 100;

/** A notification as this transaction has stored it, with its ranges. */
interface StoredNotification {
  readonly id: string;
  readonly audience: Audience;
  readonly delivery: Pick<Delivery, "history">;
}

const device = names(devices);
const range = names(planRanges);
const row = names(notifications);

const counted = selection({
  devices: computed(integer, sql`(select count(*)::int from owned)`),
  isLocked: computed(boolean, sql`is_locked`),
});

/** Counts the devices of users, and locks these. `offset 0` has the devices of each looked up by the user's id. */
const countAndLock = prepared(
  ["users"],
  ({ users }) => sql`
    with owned as (
      select from ${arrayItems(users)} as given (one)
      cross join lateral (select from ${devices} where ${device.userId} = one offset 0) as device
      limit ${most + 1}::int
    )
    select ${counted} from (select ${userLocks.areShared(users)} as is_locked) as locked`,
);

/**
 * Whether {@link planAtOnce} may plan it, if it has not too many devices. What all named users are excluded from has no
 * range for a planner, so it ends there.
 */
export function isSmall(audience: Audience): boolean {
  const users = includedUsers(audience).length;
  return kindOf(audience) === "USERS" && users <= most && (users === 0 || !asksForOffsets(audience));
}

/**
 * Plans all of a notification, unless its users have too many devices, or one of them is being deleted: then its ranges
 * are planned as those of others.
 * @param tx the transaction that has stored it
 * @param providers those in use
 * @param at the time of acceptance
 * @returns whether it has planned it
 */
export async function planAtOnce(
  tx: Database,
  { id, audience, delivery }: StoredNotification,
  providers: readonly ProviderName[],
  at: Date,
): Promise<boolean> {
  const users = includedUsers(audience).map(({ user }) => user);
  const found = await onlyRow(tx, counted, countAndLock({ users: arrayLiteral(users) }));
  if (found.devices > most || !found.isLocked) return false;
  const ending = sql`,
      all_planned as (delete from ${planRanges} where ${range.notificationId} = ${id}::uuid),
      begun as (
        update ${notifications}
        set ${row.state} = 'SENDING', ${row.plannedAt} = ${at.toISOString()}::timestamptz,
          ${row.chunks} = (select count(*) from made), ${row.recipients} = ${usersOfStep}
        where ${row.id} = ${id}::uuid
      )`;
  const { chunks } = await planUsers(
    tx,
    {
      ...{ notificationId: id, rangeNumber: 0, after: 0, through: users.length, providers, at },
      ...{ audience, zones: undefined, entries: delivery.history ? "rows" : "none" },
    },
    ending,
  );
  if (chunks === 0) await completeNotification(tx, id, at);
  return true;
}
