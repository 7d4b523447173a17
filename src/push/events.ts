/** The events of the push service, whose data are messages of proto/push/v1/events.proto. */
import { type DescEnum, type DescMessage, fromJsonString } from "@bufbuild/protobuf";
import { type SQL, sql } from "drizzle-orm";
import {
  AuthorizationRevokedSchema,
  IdentityDeletedSchema,
  RevocationReason,
} from "../../gen/proto/auth/v1/events_pb.ts";
import {
  AudienceKindSchema,
  AudienceKind as KindValues,
  NotificationAcceptedSchema,
  NotificationCompletedSchema,
  PushTokenRegisteredSchema,
  PushTokenRemovedSchema,
  RemovalReason as ReasonValues,
  RemovalReasonSchema,
  RemovalsHeldSchema,
} from "../../gen/proto/push/v1/events_pb.ts";
import type { DurableConsumer, EventStream } from "../platform/messaging/broker.ts";
import type { CloudEvent } from "../platform/messaging/cloud-event.ts";
import { type EventKind, eventKind, type FieldsOf, insertEvents } from "../platform/messaging/outbox.ts";
import { outbox } from "./schema.ts";

export const PushEvents = {
  tokenRegistered: eventKind("push.token.registered.v1", PushTokenRegisteredSchema),
  tokenRemoved: eventKind("push.token.removed.v1", PushTokenRemovedSchema),
  notificationAccepted: eventKind("push.notification.accepted.v1", NotificationAcceptedSchema),
  notificationCompleted: eventKind("push.notification.completed.v1", NotificationCompletedSchema),
  removalsHeld: eventKind("push.removals.held.v1", RemovalsHeldSchema),
} as const;

/** Where the broker keeps the events of this service. */
export const pushEventStream: EventStream = { name: "gatepost-push", subjects: "push.>" };

/** An event of the auth service: its subject, a user, has been deleted. */
export const identityDeleted = eventKind("auth.identity.deleted.v1", IdentityDeletedSchema);
/** An event of the auth service: an authorization of its subject has ended. The reuse of a refresh token has it too. */
export const authorizationRevoked = eventKind("auth.authorization.revoked.v1", AuthorizationRevokedSchema);

const { CLIENT, REUSE, IDENTITY_DELETED, PASSWORD_CHANGED, USER, OPERATOR } = RevocationReason;
/** With which the user is signed out: not by a disabled client, nor by what a later version may add. */
const signedOutReasons: ReadonlySet<RevocationReason> = new Set([
  CLIENT,
  REUSE,
  IDENTITY_DELETED,
  PASSWORD_CHANGED,
  USER,
  OPERATOR,
]);

/** @returns the authorization whose user is signed out; undefined if it has ended without that */
export function endedAuthorization({ data }: Pick<CloudEvent, "data">): string | undefined {
  const json = JSON.stringify(data);
  const ended = fromJsonString(AuthorizationRevokedSchema, json, { ignoreUnknownFields: true });
  return signedOutReasons.has(ended.reason) ? ended.authorizationId : undefined;
}

/** How far this service has read the deletions on the broker. */
export const deletionsConsumer: DurableConsumer = {
  stream: { name: "gatepost-auth", subjects: "auth.>" },
  name: "push-identity-deleted",
  subject: identityDeleted.type,
};

/** The events of the auth service that this one acts on, each with how far it has read them on the broker. */
export const consumptions = [
  { consumer: deletionsConsumer, schema: identityDeleted.message },
  {
    consumer: {
      ...deletionsConsumer,
      name: "push-authorization-revoked",
      subject: authorizationRevoked.type,
    },
    schema: authorizationRevoked.message,
  },
] as const;

/** The subject of an event: a user, a notification, or else a provider. */
type About = { readonly userId: SQL } | { readonly notificationId: SQL } | { readonly provider: SQL };

/** When an event happened, and for which rows it is written. */
interface Occurrence {
  /** The time of the event; the beginning of the transaction, by the database's clock, unless given. */
  readonly at?: Date | SQL;
  /** A `from` clause that yields a row for each event; without it, one event is written. */
  readonly from?: SQL;
}

/** The statement that writes events, by itself or within another. A 64-bit integer is text, as in Protobuf's JSON. */
export function recordEvent<Message extends DescMessage>(
  kind: EventKind<Message>,
  fields: FieldsOf<Message> & About,
  { at, from = sql`` }: Occurrence = {},
): SQL {
  const subject = subjectOf(fields);
  const time = at instanceof Date ? sql`${at.toISOString()}::timestamptz` : (at ?? sql`now()`);
  return insertEvents(outbox, { kind, subject, fields, at: time, from });
}

function subjectOf(about: About): SQL {
  if ("userId" in about) return about.userId;
  return "notificationId" in about ? about.notificationId : about.provider;
}

/** Whom a notification is for, if not those at some offsets. */
export type AudienceKind = Exclude<keyof typeof KindValues, "UNSPECIFIED">;

/** The kind's name in the JSON mapping of the message. */
export function audienceKindName(kind: AudienceKind): string {
  return nameOf(AudienceKindSchema, KindValues[kind]);
}

/** Why a device is no longer registered. */
export type RemovalReason = Exclude<keyof typeof ReasonValues, "UNSPECIFIED">;

/** The reason's name in the JSON mapping of the message. */
export function removalReasonName(reason: RemovalReason): string {
  return nameOf(RemovalReasonSchema, ReasonValues[reason]);
}

function nameOf(schema: DescEnum, number: number): string {
  const value = schema.value[number];
  if (!value) throw new Error(`${schema.name} has no value ${number}`);
  return value.name;
}
