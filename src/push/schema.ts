/** The tables of the push service, in the PostgreSQL schema `push`: the ledger of every send, and its queue. */
import { type SQL, type SQLWrapper, sql } from "drizzle-orm";
import {
  bigint,
  bigserial,
  bit,
  boolean,
  check,
  customType,
  index,
  integer,
  jsonb,
  pgSchema,
  primaryKey,
  real,
  smallint,
  text,
  uniqueIndex,
  uuid,
} from "drizzle-orm/pg-core";
import { bytea, instant } from "../platform/database/sql/columns.ts";
import { inboxTable } from "../platform/messaging/inbox.ts";
import { outboxTable } from "../platform/messaging/outbox-table.ts";
import { relayLeaseTable } from "../platform/messaging/relay-leases.ts";

export const push = pgSchema("push");

/** Text for ids, compared as bytes: several times faster than by the rules of a language. */
export const byteOrderedText = customType<{ data: string }>({ dataType: () => 'text COLLATE "C"' });

/** The zone id of a device, as its app has given it: the name of a time zone, or else minutes east of UTC. */
export const zoneIdOf = (timeZone: SQLWrapper, utcOffset: SQLWrapper): SQL =>
  sql`coalesce(${timeZone}, ${utcOffset}::text)`;

/** Devices that notifications are sent to. */
export const devices = push.table(
  "devices",
  {
    /** In the order of registration; lasts as long as the device is its user's. Planning visits each id once. */
    id: bigserial("id", { mode: "number" }).primaryKey(),
    userId: byteOrderedText("user_id").notNull(),
    provider: text("provider").notNull(),
    token: text("token").notNull(),
    /** SHA-256 of the device's identity at its provider, which is the same for each spelling of its token. */
    tokenHash: bytea("token_hash").notNull(),
    /** Minutes east of UTC. If the device has a time zone: its offset when the app last registered it. */
    utcOffset: smallint("utc_offset").notNull(),
    /** The name of a zone in the IANA database. Null: the app has given an offset, or nothing. */
    timeZone: byteOrderedText("time_zone"),
    expiresAt: instant("expires_at").notNull(),
    registeredAt: instant("registered_at").notNull(),
    /**
     * When the app last registered the token, by the database's clock, whatever the clocks of the processes say. A
     * provider's report that it died before this time is out of date.
     */
    renewedAt: instant("renewed_at").notNull(),
    /** The authorization of the token with which it was last registered, with whose end it goes. Null: not known. */
    authorizationId: text("authorization_id"),
    /** A language tag (BCP 47) with its script, the likely one if need be: de-Latn-AT. Null: its app has given none. */
    language: byteOrderedText("language"),
    /** What its app has said that it is: ios, android or web. Null: nothing; its provider may say it then. */
    platform: text("platform"),
  },
  (table) => [
    uniqueIndex("devices_token_unique").on(table.tokenHash),
    index("devices_user").on(table.userId, table.id),
    index("devices_expiry").on(table.expiresAt),
    // Planning finds its recipients by this index, and the zones that are in use.
    index("devices_zone").on(zoneIdOf(table.timeZone, table.utcOffset), table.id),
    check("devices_platform", sql`${table.platform} in ('ios', 'android', 'web')`),
  ],
);

/** What became of a notification's devices at an offset, in minutes, and a provider; `failures` are by reason. */
type ChunkTotals = Record<"utcOffset" | "planned" | "sent" | "failed" | "dropped", number> & {
  readonly provider: string;
  readonly failures: Readonly<Record<string, number>>;
};

/**
 * Notifications, from acceptance on. PLANNING: recipients are being found, and chunks are sent meanwhile. SENDING:
 * all recipients are planned. PAUSED, CANCELLED: by an operator. COMPLETED: no chunk is left to send.
 */
export const notifications = push.table(
  "notifications",
  {
    /** UUIDv7 whose time is accepted_at, so ids are in the order of acceptance. */
    id: uuid("id").primaryKey(),
    /** In the default language, as is the message. Both are empty in a silent notification. */
    title: text("title").notNull(),
    message: text("message").notNull(),
    image: text("image"),
    /** Its texts in all languages, and what else goes to devices. Null: there is only what stands above. */
    content: jsonb("content"),
    /**
     * Whom it is for. OFFSETS: devices at `utc_offsets`. USERS: those of `notification_users` alone, as in a TEST run.
     * FILTERS, EVERYBODY: devices that `audience` describes, and those users.
     */
    kind: text("audience_kind").notNull().default("OFFSETS"),
    /** Minutes; null unless it is for OFFSETS. */
    utcOffsets: smallint("utc_offsets").array(),
    /** The filters, and how many users are named. Null if it is for OFFSETS. */
    audience: jsonb("audience"),
    /** The last device that existed when it was accepted: it goes to no later one. Null: it names no users. */
    lastDeviceId: bigint("last_device_id", { mode: "number" }),
    /** How providers treat its messages: high or normal. */
    priority: text("priority").notNull().default("high"),
    /** What it replaces on a device, and is replaced by: what has the same. Null: its id. */
    collapseId: text("collapse_id"),
    /** The most messages in a second, over all providers and processes. Null: only the providers' own limits hold. */
    maxPerSecond: integer("max_per_second"),
    /** Whether its recipients have an entry in their history. */
    history: boolean("history").notNull().default(true),
    /** The client that sent it; null in a test run. */
    clientId: text("client_id"),
    state: text("state").notNull(),
    acceptedAt: instant("accepted_at").notNull(),
    /** Messages that are not sent by this time are dropped. */
    expiresAt: instant("expires_at").notNull(),
    /** The number of chunks planned so far. */
    chunks: integer("chunks").notNull().default(0),
    /** The time of the last step of planning; null while planning is not finished. */
    plannedAt: instant("planned_at"),
    /** The number of users with a history entry. */
    recipients: integer("recipients").notNull().default(0),
    /** The sums over its chunks that were DONE when it completed, by offset and provider; those chunks are deleted. */
    totals: jsonb("totals").$type<ChunkTotals[]>().notNull().default([]),
    /** The span in which it was accepted, which planning and sending continue (W3C Trace Context). Null: not traced. */
    traceparent: text("traceparent"),
    tracestate: text("tracestate"),
    completedAt: instant("completed_at"),
    /** The time since which it is in no history any more; null if it was not recalled. */
    recalledAt: instant("recalled_at"),
    /** Set when so many of its devices were reported dead that their tokens are no longer removed. */
    removalStoppedAt: instant("removal_stopped_at"),
    /** Since when it is PAUSED because the database was restored from a back-up; null once an operator has resumed it. */
    heldAt: instant("held_at"),
  },
  (table) => [
    index("notifications_unfinished").on(table.id).where(sql`${table.completedAt} is null`),
    // Each look into a history reads these ids.
    index("notifications_recalled").on(table.id).where(sql`${table.recalledAt} is not null`),
    check(
      "notifications_state",
      sql`${table.state} in ('PLANNING', 'SENDING', 'PAUSED', 'COMPLETED', 'CANCELLED')`,
    ),
    check("notifications_kind", sql`${table.kind} in ('OFFSETS', 'USERS', 'FILTERS', 'EVERYBODY', 'TEST')`),
    check("notifications_offsets", sql`(${table.utcOffsets} is not null) = (${table.kind} = 'OFFSETS')`),
    check("notifications_audience", sql`(${table.audience} is null) = (${table.kind} = 'OFFSETS')`),
    check("notifications_priority", sql`${table.priority} in ('high', 'normal')`),
  ],
);

/** Gives users their numbers in the history. A number is never given again. */
export const historyUserNumbers = push.sequence("history_user_numbers", { startWith: 1 });

/** Users who have entries in the history, each with the number that it knows them by. */
export const historyUsers = push.table(
  "history_users",
  {
    /** The user's id. schema.sql includes the number in the index of the primary key. */
    userId: byteOrderedText("user_id").primaryKey(),
    userNumber: bigint("user_number", { mode: "number" }).notNull(),
  },
  (table) => [uniqueIndex("history_users_number").on(table.userNumber)],
);

/** Users whose entries share a row: they have consecutive numbers, and the first number is a multiple of this. */
export const blockSize = 512;

/** The entries of users in the history: to which users of a block a notification was sent. */
export const historyBlocks = push.table(
  "history_blocks",
  {
    /** The users' numbers, divided by {@link blockSize}. */
    userBlock: integer("user_block").notNull(),
    /** A UUIDv7, so it also orders entries by time. */
    notificationId: uuid("notification_id").notNull(),
    /** A bit for each user, in the order of their numbers. */
    recipientBits: bit("recipient_bits", { dimensions: blockSize }).notNull(),
  },
  (table) => [
    // schema.sql includes the bits in this index.
    primaryKey({ name: "history_blocks_pkey", columns: [table.userBlock, table.notificationId] }),
    // This index is for the recipients of a notification, and for the janitor, which removes by age. There are no
    // nulls; `nulls first` keeps the planner from using this index for a user's newest entries.
    index("history_blocks_age").on(table.notificationId.asc().nullsFirst()),
  ],
);

/** The entries that their users have viewed. */
export const historyViews = push.table(
  "history_views",
  {
    /** The user's number in the history. */
    userNumber: bigint("user_number", { mode: "number" }).notNull(),
    notificationId: uuid("notification_id").notNull(),
    /** The time at which it was marked as viewed; -infinity if that is no longer known. */
    viewedAt: instant("viewed_at").notNull(),
  },
  (table) => [
    // schema.sql includes the times in this index.
    primaryKey({ name: "history_views_pkey", columns: [table.userNumber, table.notificationId] }),
    index("history_views_age").on(table.notificationId.asc().nullsFirst()),
  ],
);

/**
 * Ranges of device ids, and of the positions of named users, that are still to be planned. Taking one raises `tries` and
 * puts off `due_at`; its step goes on only if `tries` is still the same.
 */
export const planRanges = push.table(
  "plan_ranges",
  {
    notificationId: uuid("notification_id").notNull(),
    /** DEVICES: it has ids of devices. USERS: positions in `notification_users`. */
    axis: text("axis").notNull().default("DEVICES"),
    /** Its ids or positions are greater than this. */
    after: bigint("after_id", { mode: "number" }).notNull(),
    /** The last of them. Null in a first range of DEVICES until planning begins: the last device that exists then. */
    through: bigint("through_id", { mode: "number" }),
    /** The number of the range among the notification's; 0 is the first one, -1 that of a test run. */
    rangeNumber: integer("range_number").notNull(),
    /** How often it was taken. */
    tries: integer("tries").notNull().default(0),
    /** When it may be taken. Infinity: its notification is paused. Ranges are taken in this order, so they take turns. */
    dueAt: instant("due_at").notNull().default(sql`now()`),
  },
  (table) => [
    primaryKey({ name: "plan_ranges_pkey", columns: [table.notificationId, table.axis, table.after] }),
    index("plan_ranges_due").on(sql`least(${table.rangeNumber}, 1)`, table.dueAt),
    check("plan_ranges_axis", sql`${table.axis} in ('DEVICES', 'USERS')`),
  ],
);

/** The processes that send. Each raises its `beat` every second; one whose row is deleted holds no chunk. */
export const processes = push.table("processes", {
  id: uuid("id").primaryKey(),
  beat: bigint("beat", { mode: "number" }).notNull().default(0),
  /** Services that it cannot use by what may be its own fault, such as `fcm` or `webpush https://push.example`. */
  unusable: text("unusable").array().notNull().default([]),
});

/**
 * Chunks: devices of one notification, offset and provider that one process sends to. queue/chunk-states.ts has their
 * states. `planned = sent + failed + dropped + cardinality(device_ids)`, always.
 */
export const deliveryChunks = push.table(
  "delivery_chunks",
  {
    id: bigserial("id", { mode: "number" }).primaryKey(),
    notificationId: uuid("notification_id").notNull(),
    provider: text("provider").notNull(),
    /** 0 unless its notification is for OFFSETS: others are not cut by offset. */
    utcOffset: smallint("utc_offset").notNull(),
    state: text("state").notNull().default("READY"),
    /** Chunks of low turns come first: -1 in a test run, 0 in a first range, then 1,000 × range + number within it. */
    turn: bigint("turn", { mode: "number" }).notNull(),
    /** Whether its devices were tried before: it comes after all chunks whose devices were not. */
    isRetry: boolean("is_retry").notNull().default(false),
    /** When a WAITING chunk becomes READY. */
    dueAt: instant("due_at"),
    /** What ends the wait earlier: the end of a pause of a service, or the next response of the provider. */
    awaits: text("awaits"),
    /** The process that has taken it; null unless it is TAKEN. */
    processId: uuid("process_id").references(() => processes.id),
    /** The last time that it was taken: a random id, which every write of its holder names. */
    attempt: uuid("attempt"),
    /** How often its holder has stored results under this attempt, so that a repeated write is found. */
    stored: integer("stored").notNull().default(0),
    /** How often it was taken in a row without results, as its holder died or failed. */
    takes: integer("takes").notNull().default(0),
    /** Devices still to be sent to. */
    deviceIds: bigint("device_ids", { mode: "number" }).array().notNull(),
    planned: integer("planned").notNull(),
    sent: integer("sent").notNull().default(0),
    failed: integer("failed").notNull().default(0),
    /** Devices that were not sent to, as they, their user or the notification had gone. */
    dropped: integer("dropped").notNull().default(0),
    /** How many devices failed, by reason. */
    failures: jsonb("failures").$type<Record<string, number>>().notNull().default({}),
    /** Attempts in a row that ended with errors and devices left. */
    retries: integer("retries").notNull().default(0),
    firstAttemptAt: instant("first_attempt_at"),
    /** Why the chunk was retried or given up, in words for an operator. */
    reason: text("reason"),
    updatedAt: instant("updated_at").notNull().default(sql`now()`),
  },
  (table) => [
    index("delivery_chunks_ready")
      .on(table.provider, table.isRetry, table.turn, table.id)
      .where(sql`${table.state} = 'READY'`),
    // One message in four is of the oldest chunks, whatever their turn.
    index("delivery_chunks_oldest")
      .on(table.provider, table.id)
      .where(sql`${table.state} = 'READY' and not ${table.isRetry}`),
    index("delivery_chunks_waiting").on(table.dueAt).where(sql`${table.state} = 'WAITING'`),
    index("delivery_chunks_awaiting")
      .on(table.provider, table.awaits)
      .where(sql`${table.state} = 'WAITING' and ${table.awaits} is not null`),
    index("delivery_chunks_process").on(table.processId).where(sql`${table.processId} is not null`),
    index("delivery_chunks_notification").on(table.notificationId, table.state),
    index("delivery_chunks_dead").on(table.id).where(sql`${table.state} = 'DEAD'`),
    check(
      "delivery_chunks_state",
      sql`${table.state} in ('READY', 'WAITING', 'PARKED', 'TAKEN', 'DONE', 'DEAD')`,
    ),
    check("delivery_chunks_holder", sql`(${table.state} = 'TAKEN') = (${table.processId} is not null)`),
    check("delivery_chunks_due", sql`(${table.state} = 'WAITING') = (${table.dueAt} is not null)`),
    check("delivery_chunks_awaits", sql`${table.awaits} in ('SERVICE', 'RESPONSE')`),
    check(
      "delivery_chunks_sum",
      sql`${table.planned} = ${table.sent} + ${table.failed} + ${table.dropped} + cardinality(${table.deviceIds})`,
    ),
  ],
);

/** Replays of all dead letters up to a chunk, of one notification or provider or of all; done from `after_id` on. */
export const replays = push.table("replays", {
  id: bigserial("id", { mode: "number" }).primaryKey(),
  after: bigint("after_id", { mode: "number" }).notNull().default(0),
  through: bigint("through_id", { mode: "number" }).notNull(),
  notificationId: uuid("notification_id"),
  provider: text("provider"),
});

/** Idempotency keys of sends, so that a repeated request sends nothing twice. */
export const idempotencyKeys = push.table(
  "idempotency_keys",
  {
    /** SHA-256 of client and key. */
    keyHash: bytea("key_hash").primaryKey(),
    /** SHA-256 of the request. */
    requestHash: bytea("request_hash").notNull(),
    notificationId: uuid("notification_id").notNull(),
    expiresAt: instant("expires_at").notNull(),
  },
  (table) => [index("idempotency_keys_expiry").on(table.expiresAt)],
);

/** The rate limiter and the pause of each provider, and of each of its services that has failed. */
export const providerStates = push.table(
  "provider_states",
  {
    provider: text("provider").notNull(),
    /** The origin of a push service (Web Push), which is paused alone. Empty: the provider as a whole. */
    service: text("service").notNull().default(""),
    /** The end of the last reservation. */
    nextAt: instant("next_at").notNull(),
    /** The share of the rate limit that the provider gets at the moment, up to 1. */
    share: real("share").notNull(),
    /** Failures of the service in a row; 0 after a success. */
    failures: integer("failures").notNull(),
    /** Nothing is sent before this time. */
    pausedUntil: instant("paused_until"),
    /** The cause of the pause: unavailable, refused or foreign; null if the service is not paused. */
    cause: text("cause"),
    /** The provider's response that caused the pause, for an operator. */
    reason: text("reason"),
    /** Since when no dead token of the provider is removed, until an operator decides; null: they are. */
    removalsHeldAt: instant("removals_held_at"),
    /** The time at which the service was last paused, resumed, or first had a success again. */
    since: instant("since").notNull().default(sql`now()`),
  },
  (table) => [
    primaryKey({ name: "provider_states_pkey", columns: [table.provider, table.service] }),
    check("provider_states_cause", sql`${table.cause} in ('unavailable', 'refused', 'foreign')`),
  ],
);

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

/** Events, written in the transaction of the change that they describe, until they have been delivered. */
export const outbox = outboxTable(push);

/** The leases of the processes that relay events. */
export const relayLeases = relayLeaseTable(push);

/** The ids of the events of other services that this one has handled. */
export const inbox = inboxTable(push);
