/**
 * The tables of the push service, all in the PostgreSQL schema `push`. They are the ledger of every send:
 * what was planned, sent, failed and dropped can be read off them at any moment, whatever processes came and
 * went. Jobs, which only say that there is work, are pg-boss's, in the schema `push_jobs`.
 */
import { sql } from "drizzle-orm";
import {
  bigint,
  bigserial,
  boolean,
  check,
  customType,
  index,
  integer,
  pgSchema,
  primaryKey,
  real,
  smallint,
  text,
  uniqueIndex,
  uuid,
} from "drizzle-orm/pg-core";
import { bytea, instant } from "../platform/database/columns.ts";
import { outboxTable } from "../platform/messaging/outbox-table.ts";

export const push = pgSchema("push");

/** Ids of users: compared as bytes, which is several times faster than by the rules of a language. */
const byteOrderedText = customType<{ data: string }>({ dataType: () => 'text COLLATE "C"' });

/** Devices that notifications are sent to. */
export const devices = push.table(
  "devices",
  {
    /** In the order of registration; planning walks along it, so that each device is visited once. */
    id: bigserial("id", { mode: "number" }).primaryKey(),
    userId: byteOrderedText("user_id").notNull(),
    provider: text("provider").notNull(),
    token: text("token").notNull(),
    /** SHA-256 of the token, which is too long to be indexed itself. */
    tokenHash: bytea("token_hash").notNull(),
    /** Minutes east of UTC. */
    utcOffset: smallint("utc_offset").notNull(),
    expiresAt: instant("expires_at").notNull(),
    registeredAt: instant("registered_at").notNull(),
    /** When its app last registered it: a provider that knew it dead before that is out of date. */
    renewedAt: instant("renewed_at").notNull(),
  },
  (table) => [
    uniqueIndex("devices_token_unique").on(table.tokenHash),
    // With the id, for planning walks along the users too, from device to device.
    index("devices_user").on(table.userId, table.id),
    index("devices_expiry").on(table.expiresAt),
  ],
);

/**
 * Notifications, from acceptance on. PLANNING: recipients are being found; chunks go out meanwhile. SENDING:
 * all are planned. PAUSED, CANCELLED: by an operator. COMPLETED: no chunk is left to send.
 */
export const notifications = push.table(
  "notifications",
  {
    /** UUIDv7 whose time is accepted_at: the order of ids is the order of time. */
    id: uuid("id").primaryKey(),
    title: text("title").notNull(),
    message: text("message").notNull(),
    image: text("image"),
    /** Minutes; null in a test run. */
    utcOffsets: smallint("utc_offsets").array(),
    /** The recipients of a test run, instead of offsets. */
    userIds: text("user_ids").array(),
    /** The client that sent it; null in a test run. */
    clientId: text("client_id"),
    state: text("state").notNull(),
    acceptedAt: instant("accepted_at").notNull(),
    /** When it is worth nothing any more; what is not sent by then is dropped. */
    expiresAt: instant("expires_at").notNull(),
    /** Users up to this one, and of this one the devices up to that id, have been looked at for history entries. */
    recordedUser: byteOrderedText("recorded_user").notNull().default(""),
    recordedDevice: bigint("recorded_device", { mode: "number" }).notNull().default(0),
    /** Set when all recipients have their history entries. */
    recordedAt: instant("recorded_at"),
    /** Devices up to this id have been planned. */
    plannedThrough: bigint("planned_through", { mode: "number" }).notNull(),
    /** The last device there was when planning began, which is where it ends; null before. */
    planUntil: bigint("plan_until", { mode: "number" }),
    /** Chunks planned so far: what a chunk's turn among those of other notifications is told by. */
    chunks: integer("chunks").notNull(),
    /** Set by the last step of planning. */
    plannedAt: instant("planned_at"),
    /** Users with a history entry. */
    recipients: integer("recipients").notNull(),
    completedAt: instant("completed_at"),
    /** Set when so many of its devices were reported dead that their tokens are no longer removed. */
    removalStoppedAt: instant("removal_stopped_at"),
  },
  (table) => [
    index("notifications_unfinished").on(table.id).where(sql`${table.completedAt} is null`),
    check(
      "notifications_state",
      sql`${table.state} in ('PLANNING', 'SENDING', 'PAUSED', 'COMPLETED', 'CANCELLED')`,
    ),
    check("notifications_audience", sql`(${table.utcOffsets} is null) <> (${table.userIds} is null)`),
  ],
);

/** A user's notifications, read or unread: one row a user and notification. */
export const history = push.table(
  "history",
  {
    userId: byteOrderedText("user_id").notNull(),
    /** Orders by time too: it is a UUIDv7. */
    notificationId: uuid("notification_id").notNull(),
    viewed: boolean("viewed").notNull(),
  },
  (table) => [
    primaryKey({ name: "history_pkey", columns: [table.userId, table.notificationId] }),
    index("history_unread").on(table.userId).where(sql`not ${table.viewed}`),
    // For the janitor, who removes by age. Rows come in the order of time, and equal ids are kept once: it is a
    // tenth of the table. (A BRIN index would match ever more of the table as space is used again.) Nulls, of
    // which there are none, come first, so that nobody who wants a user's newest entries walks along it.
    index("history_age").on(table.notificationId.asc().nullsFirst()),
  ],
);

/**
 * Devices of one notification, offset and provider that are sent to together. PENDING: waits for its job.
 * SENDING: a worker has it. HELD: its notification is paused. DONE. DEAD: given up, waits for an operator.
 * `planned = sent + failed + dropped + cardinality(device_ids)`, always.
 */
export const deliveryChunks = push.table(
  "delivery_chunks",
  {
    id: bigserial("id", { mode: "number" }).primaryKey(),
    notificationId: uuid("notification_id").notNull(),
    provider: text("provider").notNull(),
    utcOffset: smallint("utc_offset").notNull(),
    state: text("state").notNull(),
    /** Devices still to be sent to. */
    deviceIds: bigint("device_ids", { mode: "number" }).array().notNull(),
    planned: integer("planned").notNull(),
    sent: integer("sent").notNull(),
    /** Refused by the provider, or reported dead. */
    failed: integer("failed").notNull(),
    /** Not sent: expired, removed or cancelled before it came to them. */
    dropped: integer("dropped").notNull(),
    /** Of those that failed, reported dead. */
    dead: integer("dead").notNull(),
    /** Counts up each time that a worker takes it: only the last one may write it. */
    attempt: integer("attempt").notNull(),
    /** Attempts in a row after which devices were left because of errors. */
    retries: integer("retries").notNull(),
    firstAttemptAt: instant("first_attempt_at"),
    /** Why it was retried or given up, in words for an operator. */
    reason: text("reason"),
    updatedAt: instant("updated_at").notNull(),
  },
  (table) => [
    index("delivery_chunks_notification").on(table.notificationId),
    index("delivery_chunks_open")
      .on(table.notificationId)
      .where(sql`${table.state} in ('PENDING', 'SENDING', 'HELD')`),
    index("delivery_chunks_dead").on(table.id).where(sql`${table.state} = 'DEAD'`),
    check("delivery_chunks_state", sql`${table.state} in ('PENDING', 'SENDING', 'HELD', 'DONE', 'DEAD')`),
    check(
      "delivery_chunks_sum",
      sql`${table.planned} = ${table.sent} + ${table.failed} + ${table.dropped} + cardinality(${table.deviceIds})`,
    ),
  ],
);

/** Keys of sends, so that a repeated one sends nothing twice. */
export const idempotencyKeys = push.table(
  "idempotency_keys",
  {
    /** SHA-256 of client and key. */
    keyHash: bytea("key_hash").primaryKey(),
    /** SHA-256 of what was asked for. */
    requestHash: bytea("request_hash").notNull(),
    notificationId: uuid("notification_id").notNull(),
    expiresAt: instant("expires_at").notNull(),
  },
  (table) => [index("idempotency_keys_expiry").on(table.expiresAt)],
);

/** How fast the whole fleet sends to a provider, and whether it does: one row a provider. */
export const providerPaces = push.table("provider_paces", {
  provider: text("provider").primaryKey(),
  /** The moment up to which messages have been given out. */
  nextAt: instant("next_at").notNull(),
  /** Share of the ceiling that the provider takes at the moment, up to 1. */
  share: real("share").notNull(),
  /** Failures of the provider in a row; 0 while it works. */
  failures: integer("failures").notNull(),
  /** Nothing is sent before that. */
  pausedUntil: instant("paused_until"),
  /** Why, in words for an operator. */
  reason: text("reason"),
});

/** The last run of the test trigger: one row at most. */
export const testRuns = push.table(
  "test_runs",
  {
    id: smallint("id").primaryKey(),
    notificationId: uuid("notification_id").notNull(),
    startedAt: instant("started_at").notNull(),
  },
  (table) => [check("test_runs_one", sql`${table.id} = 1`)],
);

/** Events written with the change that they tell of, until they have been delivered. */
export const outbox = outboxTable(push);
