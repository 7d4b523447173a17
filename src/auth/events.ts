/** The events of the auth service, whose data are messages of proto/auth/v1/events.proto. */
import type { DescMessage } from "@bufbuild/protobuf";
import { type SQL, sql } from "drizzle-orm";
import {
  AccountLockedSchema,
  AttemptFailedSchema,
  AttemptKind,
  AttemptKindSchema,
  AuthorizationGrantedSchema,
  AuthorizationRefreshedSchema,
  AuthorizationRefreshRepeatedLateSchema,
  AuthorizationReuseDetectedSchema,
  AuthorizationRevokedSchema,
  CodesBreakerOpenedSchema,
  CodesLimitReachedSchema,
  IdentityCreatedSchema,
  IdentityDeletedSchema,
  IdentityUpdatedSchema,
  type CodesLimit as LimitValues,
  RevocationReason as ReasonValues,
  RevocationReasonSchema,
  TokenRevokedSchema,
} from "../../gen/proto/auth/v1/events_pb.ts";
import type { EventStream } from "../platform/messaging/broker.ts";
import { type EventKind, eventKind, type FieldsOf, insertEvents } from "../platform/messaging/outbox.ts";
import { outbox } from "./schema.ts";

export const AuthEvents = {
  identityCreated: eventKind("auth.identity.created.v1", IdentityCreatedSchema),
  identityUpdated: eventKind("auth.identity.updated.v1", IdentityUpdatedSchema),
  identityDeleted: eventKind("auth.identity.deleted.v1", IdentityDeletedSchema),
  authorizationGranted: eventKind("auth.authorization.granted.v1", AuthorizationGrantedSchema),
  authorizationRefreshed: eventKind("auth.authorization.refreshed.v1", AuthorizationRefreshedSchema),
  authorizationReuseDetected: eventKind(
    "auth.authorization.reuse_detected.v1",
    AuthorizationReuseDetectedSchema,
  ),
  refreshRepeatedLate: eventKind(
    "auth.authorization.refresh_repeated_late.v1",
    AuthorizationRefreshRepeatedLateSchema,
  ),
  authorizationRevoked: eventKind("auth.authorization.revoked.v1", AuthorizationRevokedSchema),
  tokenRevoked: eventKind("auth.token.revoked.v1", TokenRevokedSchema),
  attemptFailed: eventKind("auth.attempt.failed.v1", AttemptFailedSchema),
  accountLocked: eventKind("auth.account.locked.v1", AccountLockedSchema),
  codesLimitReached: eventKind("auth.codes.limit_reached.v1", CodesLimitReachedSchema),
  codesBreakerOpened: eventKind("auth.codes.breaker_opened.v1", CodesBreakerOpenedSchema),
} as const;

/** Where the broker keeps the events of this service. */
export const authEventStream: EventStream = { name: "gatepost-auth", subjects: "auth.>" };

/** When an event happened, and for which rows it is written. */
interface Occurrence {
  /** The time of the event; an SQL expression if the time differs between rows. */
  readonly at: Date | SQL;
  /** A `from` clause that yields a row for each event; without it, one event is written. */
  readonly from?: SQL;
}

/** The statement that writes events, complete or as the last part of a larger statement. */
export function recordEvent<Message extends DescMessage>(
  kind: EventKind<Message>,
  fields: FieldsOf<Message> & { readonly identityId: SQL },
  { at, from = sql`` }: Occurrence,
): SQL {
  const time = at instanceof Date ? sql`${at.toISOString()}::timestamptz` : at;
  return insertEvents(outbox, { kind, subject: fields.identityId, fields, at: time, from });
}

/** As {@link recordEvent}, of an event about codes: it is about no identity, but about numbers with one prefix. */
export function recordCodesEvent<Message extends DescMessage>(
  kind: EventKind<Message>,
  fields: FieldsOf<Message> & { readonly prefix: SQL },
  from?: SQL,
): SQL {
  const at = sql`clock_timestamp()`;
  return insertEvents(outbox, { kind, subject: fields.prefix, fields, at, ...(from && { from }) });
}

/** A limit on codes, as metrics name it. */
export type CodesLimit = Lowercase<Exclude<keyof typeof LimitValues, "UNSPECIFIED">>;

/** The name of a limit on codes in the JSON format of the message. */
export function codesLimitName(limit: CodesLimit): string {
  return `CODES_LIMIT_${limit.toUpperCase()}`;
}

/** Why an authorization ended. */
export type RevocationReason = Exclude<keyof typeof ReasonValues, "UNSPECIFIED">;

/** The name of the reason in the JSON format of the message. */
export function reasonName(reason: RevocationReason): string {
  const value = RevocationReasonSchema.value[ReasonValues[reason]];
  if (!value) throw new Error(`events.proto has no reason ${reason}`);
  return value.name;
}

/** An SQL expression for the name of the reason in the JSON format of the message, where the reason is one of SQL. */
export function reasonNameOf(reason: SQL): SQL {
  const { UNSPECIFIED } = ReasonValues;
  const all = Object.values(RevocationReasonSchema.value).filter(({ number }) => number !== UNSPECIFIED);
  const cases = all.map(({ localName, name }) => sql`when ${localName}::text then ${name}::text`);
  return sql`case ${reason} ${sql.join(cases, sql` `)} end`;
}

/** The name of what was guessed in the JSON format of the message. */
export function attemptKindName(kind: "password" | "code"): string {
  const number = { password: AttemptKind.PASSWORD, code: AttemptKind.CODE }[kind];
  const value = AttemptKindSchema.value[number];
  if (!value) throw new Error(`events.proto has no kind ${kind}`);
  return value.name;
}
