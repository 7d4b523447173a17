/** Stores a new notification in one transaction: its row, its event, its first range and the job of that range. */
import { randomUUID } from "node:crypto";
import { type SQL, sql } from "drizzle-orm";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { rowCount } from "../../platform/database/sql/statements.ts";
import type { Jobs } from "../../platform/messaging/jobs.ts";
import { PushEvents, recordEvent } from "../events.ts";
import { notifications } from "../schema.ts";
import { enqueueRange, firstRange } from "./plan-ranges.ts";

/** The recipients: the users with a device at one of these offsets, in minutes, or the users with these ids. */
type Audience = { readonly utcOffsets: readonly number[] } | { readonly userIds: readonly string[] };

interface NewNotification {
  /** A UUIDv7 whose time is `acceptedAt`. */
  readonly id: string;
  readonly title: string;
  readonly message: string;
  readonly image: string | null;
  readonly audience: Audience;
  /** The client that sends it; null in a test run. */
  readonly clientId: string | null;
  readonly acceptedAt: Date;
  readonly expiresAt: Date;
}

/**
 * Stores the notification and enqueues its planning, in the caller's transaction.
 * @param condition a statement; the notification is stored if the statement returns a row
 * @returns whether it was stored
 */
export async function storeNotification(
  tx: Database,
  jobs: Pick<Jobs, "enqueue">,
  notification: NewNotification,
  condition: SQL = sql`select 1 as one`,
): Promise<boolean> {
  const { id, title, message, image, audience, clientId, acceptedAt, expiresAt } = notification;
  const isTest = "userIds" in audience;
  const jobId = randomUUID();
  const offsets = isTest ? null : arrayLiteral(audience.utcOffsets);
  const userIds = isTest ? arrayLiteral(audience.userIds) : null;
  const fields = {
    notificationId: sql`${id}::text`,
    clientId: sql`${clientId ?? ""}::text`,
    utcOffsets: sql`to_jsonb(coalesce(${offsets}::smallint[], '{}'))`,
    test: sql`${isTest}::boolean`,
  };
  const row = names(notifications);
  const stored = await rowCount(
    tx,
    sql`
      with condition as (${condition}),
      accepted as (
        insert into ${notifications} (${row.id}, ${row.title}, ${row.message}, ${row.image}, ${row.utcOffsets},
          ${row.userIds}, ${row.clientId}, ${row.state}, ${row.acceptedAt}, ${row.expiresAt},
          ${row.chunks}, ${row.recipients})
        select ${id}::uuid, ${title}::text, ${message}::text, ${image}::text, ${offsets}::smallint[],
          ${userIds}::text[], ${clientId}::text, 'PLANNING', ${acceptedAt.toISOString()}::timestamptz,
          ${expiresAt.toISOString()}::timestamptz, 0, 0
        from condition
        returning ${row.id}
      ),
      everybody as (${firstRange(jobId, sql`from accepted`)})
      ${recordEvent(PushEvents.notificationAccepted, fields, { at: acceptedAt, from: sql`from accepted` })}`,
  );
  if (stored === 0) return false;
  await enqueueRange(tx, jobs, id, { jobId, turn: 0, isTest });
  return true;
}
