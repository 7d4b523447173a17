/** The row lock that precedes every change of a notification's state and every opening of its chunks. */
import { type SQL, sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { boolean, names, number, oneOf } from "../../platform/database/sql/readers.ts";
import {
  computed,
  epochMs,
  prepared,
  type RowOf,
  rows,
  selection,
} from "../../platform/database/sql/statements.ts";
import { keepsOutcomes } from "../queue/store-outcomes.ts";
import { notifications } from "../schema.ts";

const states = ["PLANNING", "SENDING", "PAUSED", "COMPLETED", "CANCELLED"] as const;
export type NotificationState = (typeof states)[number];

/** Reads a notification's state. */
export const notificationState = oneOf(states);

/** Condition on the expiry of a notification: no worker has its chunks any more, even if it has not ended. */
export const isAbandoned = (expiresAt: SQL): SQL => sql`${expiresAt} < now() - interval '1 hour'`;

const notification = names(notifications);
const lockedFields = {
  state: computed(notificationState, notification.state),
  isTest: computed(boolean, sql`${notification.kind} = 'TEST'`),
  isRecalled: computed(boolean, sql`${notification.recalledAt} is not null`),
  isPlanned: computed(boolean, sql`${notification.plannedAt} is not null`),
  /** Milliseconds since the epoch. */
  expiresAt: computed(number, epochMs(notification.expiresAt)),
  /** By the database's clock. */
  isExpired: computed(boolean, sql`${notification.expiresAt} <= now()`),
  /** Whether it has expired so long ago that no worker has any of its chunks. */
  isAbandoned: computed(boolean, isAbandoned(notification.expiresAt)),
  /** Whether what becomes of each device is kept. */
  keepsOutcomes: computed(boolean, keepsOutcomes(notification)),
  /** The number of chunks planned so far. */
  chunks: notification.chunks,
};
const locked = selection(lockedFields);
export type LockedNotification = RowOf<typeof lockedFields>;

// Each send runs these a few times, so they are texts that are rendered once.
const lockFor = (strength: "update" | "share") =>
  prepared(
    ["id"],
    ({ id }) => sql`
      select ${locked} from ${notifications} where ${notification.id} = ${id}::uuid for ${sql.raw(strength)}`,
  );
const lockStatements = { update: lockFor("update"), share: lockFor("share") };

/** Whether the text has the syntax of a notification's id. */
export const isNotificationId = (text: string): boolean =>
  /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text);

/**
 * Locks a notification against planning, control and completion elsewhere until the transaction ends.
 * @param strength `share`: others may share the lock
 * @returns undefined if there is none
 */
export async function lockNotification(
  tx: Database,
  id: string,
  strength: "update" | "share" = "update",
): Promise<LockedNotification | undefined> {
  if (!isNotificationId(id)) return undefined;
  const [row] = await rows(tx, locked, lockStatements[strength]({ id }));
  return row;
}
