/** The lock that everybody takes first who changes a notification's state or opens chunks of it. */
import { sql } from "drizzle-orm";
import { type Database, rows } from "../../platform/database/database.ts";

export type NotificationState = "PLANNING" | "SENDING" | "PAUSED" | "COMPLETED" | "CANCELLED";

export interface LockedNotification {
  readonly state: NotificationState;
  readonly isTest: boolean;
  /** Whether its recipients have their history entries. */
  readonly isRecorded: boolean;
  readonly isPlanned: boolean;
  /** Milliseconds since the epoch. */
  readonly expiresAt: number;
}

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** Whether it can be a notification's id at all. */
export function isNotificationId(text: string): boolean {
  return uuid.test(text);
}

/** Until the transaction ends nobody else plans, controls or completes it. @returns undefined if there is none */
export async function lockNotification(tx: Database, id: string): Promise<LockedNotification | undefined> {
  if (!isNotificationId(id)) return undefined;
  const [row] = await rows<{
    state: NotificationState;
    isTest: boolean;
    isRecorded: boolean;
    isPlanned: boolean;
    expires: number;
  }>(
    tx,
    sql`
      select state, user_ids is not null as "isTest", recorded_at is not null as "isRecorded",
        planned_at is not null as "isPlanned", (extract(epoch from expires_at) * 1000)::float8 as expires
      from push.notifications where id = ${id}::uuid for update`,
  );
  if (!row) return undefined;
  const { expires, ...notification } = row;
  return { ...notification, expiresAt: expires };
}
