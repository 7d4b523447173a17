/** The tables of recipients one by one: who is named, what became of their devices, and their entries in the history. */
import { sql } from "drizzle-orm";
import { bigint, boolean, check, index, integer, jsonb, primaryKey, text, uuid } from "drizzle-orm/pg-core";
import { instant } from "../platform/database/sql/columns.ts";
import { byteOrderedText, push } from "./schema.ts";

/**
 * The users whom a notification names. They are kept until it is completed and no dead letter can be replayed, and go
 * with the user.
 */
export const notificationUsers = push.table(
  "notification_users",
  {
    notificationId: uuid("notification_id").notNull(),
    /** From 1, those who are excluded last. Ranges of planning have a span of these. */
    position: integer("position").notNull(),
    /** Once in a notification: who is both named and excluded is excluded. */
    userId: byteOrderedText("user_id").notNull(),
    /** Whether the notification is not for this user. */
    isExcluded: boolean("is_excluded").notNull().default(false),
    /** The values of the names in its texts. Null: there are none. */
    variables: jsonb("variables").$type<Readonly<Record<string, string>>>(),
  },
  (table) => [
    primaryKey({ name: "notification_users_pkey", columns: [table.notificationId, table.position] }),
    // Sending finds a device's user by this index, and it is for the removal of a user. With the notification in it,
    // to store 10,000 named users took a third longer.
    index("notification_users_user").on(table.userId),
  ],
);

/** Entries in the history of notifications for USERS alone; `history_blocks` has those of all others. */
export const historyEntries = push.table(
  "history_entries",
  {
    /** The user's number in the history. */
    userNumber: bigint("user_number", { mode: "number" }).notNull(),
    /** A UUIDv7, so it also orders entries by time. */
    notificationId: uuid("notification_id").notNull(),
    /** The values of the names in its texts. Null: there are none. */
    variables: jsonb("variables").$type<Readonly<Record<string, string>>>(),
  },
  (table) => [
    primaryKey({ name: "history_entries_pkey", columns: [table.userNumber, table.notificationId] }),
    // For the janitor and the recipients of a notification. With the user, as it may be read for a user's entry, too.
    index("history_entries_age").on(table.notificationId.asc().nullsFirst(), table.userNumber),
  ],
);

/** What became of each device of a notification for at most 1,000 named USERS, written with the results of its chunk. */
export const messageOutcomes = push.table(
  "message_outcomes",
  {
    /** A UUIDv7, so the janitor removes by age. */
    notificationId: uuid("notification_id").notNull(),
    userId: byteOrderedText("user_id").notNull(),
    deviceId: bigint("device_id", { mode: "number" }).notNull(),
    provider: text("provider").notNull(),
    outcome: text("outcome").notNull(),
    /** The provider's reason; null if it was sent. */
    reason: text("reason"),
    at: instant("settled_at").notNull(),
  },
  (table) => [
    primaryKey({
      name: "message_outcomes_pkey",
      columns: [table.notificationId, table.userId, table.deviceId],
    }),
    // This index is for the removal of a user.
    index("message_outcomes_user").on(table.userId),
    check(
      "message_outcomes_outcome",
      sql`${table.outcome} in ('SENT', 'FAILED', 'DROPPED', 'DEAD_LETTERED')`,
    ),
  ],
);

/** The rate limiters of notifications with a limit of their own. They are not locked with their notifications. */
export const sendRates = push.table("send_rates", {
  notificationId: uuid("notification_id").primaryKey(),
  /** The end of the last reservation. */
  nextAt: instant("next_at").notNull(),
  /** When the chunks that wait could all be sent. The next one that waits comes after them. */
  queueEndsAt: instant("queue_ends_at").notNull(),
});
