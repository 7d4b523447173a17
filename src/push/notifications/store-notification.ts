/** Stores a new notification: its row, its event, and its first range. */
import { type SQL, sql } from "drizzle-orm";
import { currentSpan } from "../../platform/base/tracing.ts";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { rowCount } from "../../platform/database/sql/statements.ts";
import { PushEvents, recordEvent } from "../events.ts";
import { notifications, planRanges } from "../schema.ts";

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

const row = names(notifications);
const range = names(planRanges);

/**
 * Stores the notification, so that it will be planned. It is SQL text, as each send is one statement.
 * @param condition a statement; the notification is stored if the statement returns a row
 * @returns whether it was stored
 */
export async function storeNotification(
  db: Database,
  notification: NewNotification,
  condition: SQL = sql`select 1 as one`,
): Promise<boolean> {
  const { id, title, message, image, audience, clientId, acceptedAt, expiresAt } = notification;
  const isTest = "userIds" in audience;
  const offsets = isTest ? null : arrayLiteral(audience.utcOffsets);
  const userIds = isTest ? arrayLiteral(audience.userIds) : null;
  const { traceparent = null, tracestate = null } = currentSpan()?.context ?? {};
  const fields = {
    notificationId: sql`${id}::text`,
    clientId: sql`${clientId ?? ""}::text`,
    utcOffsets: sql`to_jsonb(coalesce(${offsets}::smallint[], '{}'))`,
    test: sql`${isTest}::boolean`,
  };
  const stored = await rowCount(
    db,
    sql`
      with condition as (${condition}),
      accepted as (
        insert into ${notifications} (${row.id}, ${row.title}, ${row.message}, ${row.image}, ${row.utcOffsets},
          ${row.userIds}, ${row.clientId}, ${row.state}, ${row.acceptedAt}, ${row.expiresAt},
          ${row.traceparent}, ${row.tracestate})
        select ${id}::uuid, ${title}::text, ${message}::text, ${image}::text, ${offsets}::smallint[],
          ${userIds}::text[], ${clientId}::text, 'PLANNING', ${acceptedAt.toISOString()}::timestamptz,
          ${expiresAt.toISOString()}::timestamptz, ${traceparent}::text, ${tracestate}::text
        from condition
        returning ${row.id}
      ),
      -- It has all devices.
      first_range as (
        insert into ${planRanges} (${range.notificationId}, ${range.after}, ${range.rangeNumber})
        select ${row.id}, 0, ${isTest ? -1 : 0}::int from accepted
      )
      ${recordEvent(PushEvents.notificationAccepted, fields, { at: acceptedAt, from: sql`from accepted` })}`,
  );
  return stored > 0;
}
