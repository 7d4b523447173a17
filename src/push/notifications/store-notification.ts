/** The statement that makes a notification durable: its row, the users that it names, its first ranges, its event. */
import { type SQL, sql } from "drizzle-orm";
import { currentSpan } from "../../platform/base/tracing.ts";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/readers.ts";
import { rowCount } from "../../platform/database/sql/statements.ts";
import type { Variables } from "../content/content.ts";
import { type AudienceKind, audienceKindName, PushEvents, recordEvent } from "../events.ts";
import { notificationUsers } from "../recipients-schema.ts";
import { devices, notifications, planRanges } from "../schema.ts";
import { type Audience, includedUsers } from "./audience.ts";
import type { NotificationRequest } from "./read-notification.ts";

/** OFFSETS: the audience is one filter, of offsets (`/push`). TEST: it has the users of test runs. */
export type NotificationKind = AudienceKind | "OFFSETS" | "TEST";

export interface NewNotification extends NotificationRequest {
  /** A UUIDv7 whose time is `acceptedAt`. */
  readonly id: string;
  readonly kind: NotificationKind;
  /** The client that sends it; null in a test run. */
  readonly clientId: string | null;
  readonly acceptedAt: Date;
  readonly expiresAt: Date;
}

/** Named users of a range, at most; it is planned in one step. */
const usersOfRange = 500;

const row = names(notifications);
const range = names(planRanges);
const named = names(notificationUsers);
const device = names(devices);

/**
 * Stores a notification, in one statement.
 * @param condition a statement; the notification is stored if the statement returns a row
 * @returns whether it was stored
 */
export async function storeNotification(
  db: Database,
  notification: NewNotification,
  condition: SQL = sql`select 1 as one`,
): Promise<boolean> {
  const { id, kind, audience, clientId, acceptedAt } = notification;
  const users = namedUsers(audience);
  const parts = [
    sql`condition as (${condition})`,
    sql`accepted as (${insertRow(notification, users.included > 0)})`,
    ...(users.rows.length > 0 ? [sql`named as (${insertUsers(users)})`] : []),
    ...(kind === "USERS" || kind === "TEST" ? [] : [sql`first_range as (${insertDeviceRange})`]),
    ...(users.included > 0 ? [sql`user_ranges as (${insertUserRanges(users.included, kind)})`] : []),
  ];
  const isOfOffsets = kind === "OFFSETS" || kind === "TEST";
  const fields = {
    notificationId: sql`${id}::text`,
    clientId: sql`${clientId ?? ""}::text`,
    utcOffsets: sql`to_jsonb(coalesce(${offsetsOf(notification)}::smallint[], '{}'))`,
    test: sql`${kind === "TEST"}::boolean`,
    audience: sql`${isOfOffsets ? null : audienceKindName(kind)}::text`,
    users: sql`${isOfOffsets ? null : users.included}::int`,
    filters: sql`${isOfOffsets ? null : audience.anyOf.length}::int`,
  };
  const stored = await rowCount(
    db,
    sql`
      with ${sql.join(parts, sql`, `)}
      ${recordEvent(PushEvents.notificationAccepted, fields, { at: acceptedAt, from: sql`from accepted` })}`,
  );
  return stored > 0;
}

function offsetsOf({ kind, audience }: NewNotification): string | null {
  return kind === "OFFSETS" ? arrayLiteral(audience.anyOf[0]?.utcOffsets ?? []) : null;
}

function insertRow(notification: NewNotification, namesUsers: boolean): SQL {
  const { id, kind, audience, content, delivery, clientId, acceptedAt, expiresAt } = notification;
  const { defaultLanguage = Object.keys(content.texts)[0], texts, image } = content;
  const { title, message } = texts[defaultLanguage ?? ""] ?? { title: "", message: "" };
  const { traceparent = null, tracestate = null } = currentSpan()?.context ?? {};
  const { anyOf, except, everybody, users, personal } = audience;
  const described = { anyOf, except, everybody, users: users.length + personal.length };
  const lastDevice = sql`(select coalesce(max(${device.id}), 0) from ${devices})`;
  const values: readonly (readonly [SQL, SQL])[] = [
    [row.id, sql`${id}::uuid`],
    [row.title, sql`${title}::text`],
    [row.message, sql`${message}::text`],
    [row.image, sql`${image ?? null}::text`],
    [row.content, sql`${kind === "OFFSETS" || kind === "TEST" ? null : JSON.stringify(content)}::jsonb`],
    [row.kind, sql`${kind}::text`],
    [row.utcOffsets, sql`${offsetsOf(notification)}::smallint[]`],
    [row.audience, sql`${kind === "OFFSETS" ? null : JSON.stringify(described)}::jsonb`],
    [row.lastDeviceId, namesUsers ? lastDevice : sql`null::bigint`],
    [row.priority, sql`${delivery.priority}::text`],
    [row.collapseId, sql`${delivery.collapseId ?? null}::text`],
    [row.maxPerSecond, sql`${delivery.maxPerSecond ?? null}::int`],
    [row.history, sql`${delivery.history}::boolean`],
    [row.clientId, sql`${clientId}::text`],
    [row.state, sql`'PLANNING'`],
    [row.acceptedAt, sql`${acceptedAt.toISOString()}::timestamptz`],
    [row.expiresAt, sql`${expiresAt.toISOString()}::timestamptz`],
    [row.traceparent, sql`${traceparent}::text`],
    [row.tracestate, sql`${tracestate}::text`],
  ];
  const columns = values.map(([column]) => column);
  return sql`
    insert into ${notifications} (${sql.join(columns, sql`, `)})
    select ${sql.join(
      values.map(([, value]) => value),
      sql`, `,
    )} from condition
    returning ${row.id}`;
}

interface NamedUsers {
  /** How many of the rows, the first ones, are those that it is for. */
  readonly included: number;
  readonly rows: readonly { readonly user: string; readonly variables: Variables | null }[];
}

function namedUsers(audience: Audience): NamedUsers {
  const included = includedUsers(audience);
  const excluded = audience.exceptUsers.map((user) => ({ user, variables: null }));
  return { included: included.length, rows: [...included, ...excluded] };
}

function insertUsers({ included, rows }: NamedUsers): SQL {
  const hasVariables = rows.some(({ variables }) => variables !== null);
  const variables = hasVariables ? arrayLiteral(rows.map((one) => JSON.stringify(one.variables))) : null;
  return sql`
    insert into ${notificationUsers} (${named.notificationId}, ${named.position}, ${named.userId},
      ${named.isExcluded}, ${named.variables})
    select ${row.id}, nth, user_text, nth > ${included}::int, user_variables from accepted
    cross join unnest(${arrayLiteral(rows.map(({ user }) => user))}::text[], ${variables}::jsonb[])
      with ordinality as given (user_text, user_variables, nth)`;
}

/** It has all devices. */
const insertDeviceRange = sql`
  insert into ${planRanges} (${range.notificationId}, ${range.after}, ${range.rangeNumber})
  select ${row.id}, 0, 0 from accepted`;

function insertUserRanges(included: number, kind: NotificationKind): SQL {
  const first = kind === "TEST" ? sql`-1` : sql`(nth / ${usersOfRange}::int)`;
  return sql`
    insert into ${planRanges} (${range.notificationId}, ${range.axis}, ${range.after}, ${range.through},
      ${range.rangeNumber})
    select ${row.id}, 'USERS', nth, least(nth + ${usersOfRange}::int, ${included}::int), ${first} from accepted
    cross join generate_series(0, ${included - 1}::int, ${usersOfRange}::int) as series (nth)`;
}
