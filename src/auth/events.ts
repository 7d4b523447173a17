/**
 * The events of the auth service: names, and how one is written into the outbox. What an event carries is a
 * message of proto/auth/v1/events.proto; a writer that leaves out one of its fields, or adds one, does not
 * compile.
 */
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { type SQL, sql } from "drizzle-orm";
import {
  AuthorizationGrantedSchema,
  AuthorizationRefreshedSchema,
  AuthorizationReuseDetectedSchema,
  AuthorizationRevokedSchema,
  IdentityCreatedSchema,
  IdentityDeletedSchema,
  IdentityUpdatedSchema,
  RevocationReason as ReasonValues,
  RevocationReasonSchema,
} from "../../gen/proto/auth/v1/events_pb.ts";

/** A kind of event. */
export interface EventKind<Message extends DescMessage> {
  /** `type` of the CloudEvent. */
  readonly type: string;
  readonly message: Message;
}

function kind<const Message extends DescMessage>(type: string, message: Message): EventKind<Message> {
  return { type, message };
}

export const AuthEvents = {
  identityCreated: kind("auth.identity.created.v1", IdentityCreatedSchema),
  identityUpdated: kind("auth.identity.updated.v1", IdentityUpdatedSchema),
  identityDeleted: kind("auth.identity.deleted.v1", IdentityDeletedSchema),
  authorizationGranted: kind("auth.authorization.granted.v1", AuthorizationGrantedSchema),
  authorizationRefreshed: kind("auth.authorization.refreshed.v1", AuthorizationRefreshedSchema),
  authorizationReuseDetected: kind("auth.authorization.reuse_detected.v1", AuthorizationReuseDetectedSchema),
  authorizationRevoked: kind("auth.authorization.revoked.v1", AuthorizationRevokedSchema),
} as const;

/** The fields of a message, each as an expression of SQL. */
type FieldsOf<Message extends DescMessage> = {
  readonly [Name in Exclude<keyof MessageShape<Message>, "$typeName" | "$unknown">]: SQL;
};

/**
 * The statement that writes an event: by itself, or as the last part of a statement with other parts.
 * @param at when it happened; an expression of SQL where it is not the same for each
 * @param from `from` clause that gives a row for each event; without it, there is one
 */
export function recordEvent<Message extends DescMessage>(
  { type }: EventKind<Message>,
  fields: FieldsOf<Message> & { readonly identityId: SQL },
  at: Date | SQL,
  from: SQL = sql``,
): SQL {
  const members = Object.entries<SQL>(fields).map(([name, value]) => sql`${name}::text, ${value}`);
  return sql`
    insert into auth.outbox (id, type, subject, data, occurred_at)
    select gen_random_uuid(), ${type}::text, ${fields.identityId}, jsonb_build_object(${sql.join(members, sql`, `)}),
      ${at instanceof Date ? sql`${at.toISOString()}::timestamptz` : at}
    ${from}
    returning 1 as one`;
}

/** Why an authorization ended. */
export type RevocationReason = Exclude<keyof typeof ReasonValues, "UNSPECIFIED">;

/** The reason as the JSON form of the message has it. */
export function reasonName(reason: RevocationReason): string {
  const value = RevocationReasonSchema.value[ReasonValues[reason]];
  if (!value) throw new Error(`events.proto has no reason ${reason}`);
  return value.name;
}
