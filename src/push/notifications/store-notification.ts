/** Stores a new notification: its row, its event and the job that plans it, in one transaction. */
import { type SQL, sql } from "drizzle-orm";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { rowCount } from "../../platform/database/statements.ts";
import type { Jobs } from "../../platform/messaging/jobs.ts";
import { type PlanJob, planQueue } from "../database.ts";
import { PushEvents, recordEvent } from "../events.ts";
import { notifications } from "../schema.ts";

/** The recipients: the users with a device at one of these offsets, in minutes, or the users with these ids. */
type Audience = { readonly utcOffsets: readonly number[] } | { readonly userIds: readonly string[] };

interface NewNotification {
  /** UUIDv7 of `acceptedAt`. */
  readonly id: string;
  readonly title: string;
  readonly message: string;
  readonly image: string | null;
  readonly audience: Audience;
  /** Null in a test run. */
  readonly clientId: string | null;
  readonly acceptedAt: Date;
  readonly expiresAt: Date;
}

/** Test runs are planned first: they are small, and an operator waits for them. */
const testRunPriority = 1;

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
  const offsets = isTest ? null : arrayLiteral(audience.utcOffsets.map(String));
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
          ${row.plannedThrough}, ${row.chunks}, ${row.recipients})
        select ${id}::uuid, ${title}::text, ${message}::text, ${image}::text, ${offsets}::smallint[],
          ${userIds}::text[], ${clientId}::text, 'PLANNING', ${acceptedAt.toISOString()}::timestamptz,
          ${expiresAt.toISOString()}::timestamptz, 0, 0, 0
        from condition
        returning ${row.id}
      )
      ${recordEvent(PushEvents.notificationAccepted, fields, sql`from accepted`, acceptedAt)}`,
  );
  if (stored === 0) return false;
  const data: PlanJob = { notificationId: id };
  await jobs.enqueue(tx, planQueue, [{ data, ...(isTest && { priority: testRunPriority }) }]);
  return true;
}
