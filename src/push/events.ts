/**
 * The events of the push service: names, and how one is written into the outbox. What an event carries is a
 * message of proto/push/v1/events.proto; a writer that leaves out one of its fields, or adds one, does not
 * compile.
 */
import type { DescMessage } from "@bufbuild/protobuf";
import { type SQL, sql } from "drizzle-orm";
import {
  NotificationAcceptedSchema,
  NotificationCompletedSchema,
  PushTokenRegisteredSchema,
  PushTokenRemovedSchema,
  RemovalReason as ReasonValues,
  RemovalReasonSchema,
} from "../../gen/proto/push/v1/events_pb.ts";
import { type EventKind, eventKind, type FieldsOf, insertEvents } from "../platform/messaging/outbox.ts";
import { outbox } from "./schema.ts";

export const PushEvents = {
  tokenRegistered: eventKind("push.token.registered.v1", PushTokenRegisteredSchema),
  tokenRemoved: eventKind("push.token.removed.v1", PushTokenRemovedSchema),
  notificationAccepted: eventKind("push.notification.accepted.v1", NotificationAcceptedSchema),
  notificationCompleted: eventKind("push.notification.completed.v1", NotificationCompletedSchema),
} as const;

/** Whom or what an event is about: its subject. */
type About = { readonly userId: SQL } | { readonly notificationId: SQL };

/**
 * The statement that writes an event: by itself, or as a part of a statement with other parts. An integer of
 * 64 bits must be given as text, as the JSON form of a message has it.
 * @param from `from` clause that gives a row for each event; without it, there is one
 * @param at when it happened; the beginning of the transaction, by the database's clock, unless given
 */
export function recordEvent<Message extends DescMessage>(
  kind: EventKind<Message>,
  fields: FieldsOf<Message> & About,
  from: SQL = sql``,
  at?: Date,
): SQL {
  const subject = "userId" in fields ? fields.userId : fields.notificationId;
  const time = at ? sql`${at.toISOString()}::timestamptz` : sql`now()`;
  return insertEvents(outbox, { kind, subject, fields, at: time, from });
}

/** Why a device is no longer registered. */
export type RemovalReason = Exclude<keyof typeof ReasonValues, "UNSPECIFIED">;

/** The reason as the JSON form of the message has it. */
export function removalReasonName(reason: RemovalReason): string {
  const value = RemovalReasonSchema.value[ReasonValues[reason]];
  if (!value) throw new Error(`events.proto has no reason ${reason}`);
  return value.name;
}
