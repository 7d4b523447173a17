/** The row lock that precedes every change of a notification's state and every opening of its chunks. */
import { sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { boolean, number, oneOf } from "../../platform/database/sql/readers.ts";
import {
  computed,
  epochMs,
  prepared,
  type RowOf,
  rows,
  selection,
} from "../../platform/database/sql/statements.ts";
import { notifications } from "../schema.ts";

const states = ["PLANNING", "SENDING", "PAUSED", "COMPLETED", "CANCELLED"] as const;
export type NotificationState = (typeof states)[number];

/** Reads a notification's state. */
export const notificationState = oneOf(states);

const notification = names(notifications);
const lockedFields = {
  state: computed(notificationState, notification.state),
  isTest: computed(boolean, sql`${notification.userIds} is not null`),
  isRecalled: computed(boolean, sql`${notification.recalledAt} is not null`),
  isPlanned: computed(boolean, sql`${notification.plannedAt} is not null`),
  /** Milliseconds since the epoch. */
  expiresAt: computed(number, epochMs(notification.expiresAt)),
};
const locked = selection(lockedFields);
export type LockedNotification = RowOf<typeof lockedFields>;

const selectLocked = prepared(
  ["id"],
  ({ id }) => sql`select ${locked} from ${notifications} where ${notification.id} = ${id}::uuid for update`,
);

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** Whether the text has the syntax of a notification's id. */
export function isNotificationId(text: string): boolean {
  return uuid.test(text);
}

/** Locks a notification against planning, control and completion elsewhere. @returns undefined if there is none */
export async function lockNotification(tx: Database, id: string): Promise<LockedNotification | undefined> {
  if (!isNotificationId(id)) return undefined;
  const [row] = await rows(tx, locked, selectLocked({ id }));
  return row;
}
