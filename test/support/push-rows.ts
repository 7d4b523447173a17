/** Rows of the push service's tables, as sending leaves them behind, for tests of what reads or removes them. */

import { sql } from "drizzle-orm";
import { uuidv7 } from "../../src/platform/crypto/random.ts";
import { arrayLiteral, type Database } from "../../src/platform/database/database.ts";
import { deliveryChunks, notifications } from "../../src/push/schema.ts";
import { insertEntries, viewEntries } from "./history-rows.ts";

export interface NotificationRow {
  /** Milliseconds since the epoch. */
  readonly acceptedAt: number;
  readonly id?: string;
  readonly title?: string;
  readonly message?: string;
  readonly image?: string | null;
  /** COMPLETED unless given; CANCELLED and COMPLETED are finished. */
  readonly state?: "COMPLETED" | "CANCELLED" | "PAUSED" | "SENDING";
  readonly isTest?: boolean;
  /** Whether they have viewed it, user by user. */
  readonly viewedBy?: Readonly<Record<string, boolean>>;
  /** States of its chunks, each of one device. */
  readonly chunks?: readonly ("DONE" | "DEAD" | "READY" | "PARKED")[];
}

/** @returns the notification's id */
export async function insertNotification(db: Database, row: NotificationRow): Promise<string> {
  const { acceptedAt, id = uuidv7(acceptedAt), state = "COMPLETED", isTest = false } = row;
  const at = new Date(acceptedAt);
  const { title = "a title", message = "a message", image = null, viewedBy = {}, chunks = [] } = row;
  await db.insert(notifications).values({
    id,
    title,
    message,
    image,
    utcOffsets: isTest ? null : [0],
    kind: isTest ? "TEST" : "OFFSETS",
    audience: isTest ? {} : null,
    clientId: isTest ? null : "backoffice",
    state,
    acceptedAt: at,
    expiresAt: at,
    plannedAt: at,
    recipients: Object.keys(viewedBy).length,
    chunks: chunks.length,
    completedAt: state === "COMPLETED" || state === "CANCELLED" ? at : null,
  });
  const users = Object.keys(viewedBy);
  const viewers = arrayLiteral(users.filter((user) => viewedBy[user]));
  if (users.length > 0) await insertEntries(db, id, sql`select unnest(${arrayLiteral(users)}::text[])`);
  await viewEntries(db, sql`select unnest(${viewers}::text[]) as user_id, ${id}::uuid as notification_id`);
  const rows = chunks.map((chunk) => {
    const isLeft = chunk !== "DONE";
    const deviceIds = isLeft ? [7] : [];
    return {
      notificationId: id,
      provider: "fcm",
      utcOffset: 0,
      state: chunk,
      turn: 0,
      deviceIds,
      planned: 1,
      sent: isLeft ? 0 : 1,
      updatedAt: at,
    };
  });
  if (rows.length > 0) await db.insert(deliveryChunks).values(rows);
  return id;
}
