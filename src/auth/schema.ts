/**
 * The tables of the auth service, in the PostgreSQL schema `auth`. They hold no credential that an attacker could use:
 * argon2id hashes, SHA-256 hashes of random values, and a pair that is encrypted under the token that was presented.
 */
import { sql } from "drizzle-orm";
import {
  bigint,
  bigserial,
  check,
  date,
  index,
  integer,
  interval,
  pgSchema,
  primaryKey,
  boolean as sqlBoolean,
  text,
  uniqueIndex,
  uuid,
} from "drizzle-orm/pg-core";
import { bytea, checkedJson, instant } from "../platform/database/sql/columns.ts";
import {
  boolean,
  integer as integerReader,
  jsonObject,
  listOf,
  objectOf,
  optional,
  text as textReader,
} from "../platform/database/sql/readers.ts";
import { leaseTable } from "../platform/database/standbys/lease-table.ts";
import { outboxTable } from "../platform/messaging/outbox-table.ts";
import { relayLeaseTable } from "../platform/messaging/relay-leases.ts";

export const auth = pgSchema("auth");

const clientSettings = objectOf({
  audiences: listOf(textReader),
  mayIntrospect: boolean,
  organizations: optional(listOf(textReader)),
  signUp: optional(boolean),
  attestationKeys: optional(listOf(textReader)),
});
/** All in seconds. */
const tokenSettings = objectOf({
  accessTokenSeconds: integerReader,
  refreshTokenSeconds: integerReader,
  refreshGraceSeconds: integerReader,
});

/** Registered OAuth2 clients, synchronised from OAUTH_SERVER_CLIENTS at start. */
export const clients = auth.table("clients", {
  clientId: text("client_id").primaryKey(),
  clientName: text("client_name").notNull(),
  /** argon2id, PHC strings: one, or two while a secret is replaced; none of a client of the method none. */
  secretHashes: text("secret_hashes").array().notNull(),
  authenticationMethods: text("authentication_methods").array().notNull(),
  grantTypes: text("grant_types").array().notNull(),
  scopes: text("scopes").array().notNull(),
  clientSettings: checkedJson("client_settings", clientSettings).notNull(),
  tokenSettings: checkedJson("token_settings", tokenSettings).notNull(),
  /** When the client was first listed. */
  registeredAt: instant("registered_at").notNull(),
  /** Set while the client is not listed; meanwhile its tokens are not active. */
  disabledAt: instant("disabled_at"),
  /** Authorizations of a lower generation have ended. */
  generation: integer("generation").notNull().default(0),
  /** Who has raised the generation last, where that was no setting. */
  endedBy: text("ended_by").notNull().default(""),
});

/** The list of clients that the table has been synchronised with; one row. */
export const clientLists = auth.table(
  "client_lists",
  {
    onlyRow: integer("only_row").primaryKey(),
    /** OAUTH_SERVER_CLIENTS_REVISION; null for a list without one. */
    revision: integer("revision"),
    /** argon2id of the list, PHC string: it contains secrets. */
    contentHash: text("content_hash").notNull(),
  },
  (table) => [check("client_lists_only_row", sql`${table.onlyRow} = 1`)],
);

/** User identities. */
export const identities = auth.table(
  "identities",
  {
    id: text("id").primaryKey(),
    /** Canonical E.164. */
    phone: text("phone").notNull(),
    email: text("email"),
    metadata: checkedJson("metadata", jsonObject),
    /** argon2id, PHC string; null while the identity has no password. */
    passwordHash: text("password_hash"),
    createdAt: instant("created_at").notNull(),
    updatedAt: instant("updated_at").notNull(),
  },
  (table) => [
    uniqueIndex("identities_phone_unique").on(table.phone),
    // Addresses are ASCII. In Turkish or Azerbaijani, one address in two cases would be two.
    uniqueIndex("identities_email_unique").on(sql`lower(${table.email} collate "C")`),
  ],
);

/**
 * Moments at which all authorizations of an identity ended: those whose `identityGeneration` is lower. A row is kept
 * until each of them has been marked as revoked, and a day more; it outlives its identity.
 */
export const identityEndings = auth.table(
  "identity_endings",
  {
    identityId: text("identity_id").notNull(),
    /** From a sequence, so that no number comes again, even when the row is gone. */
    generation: bigserial("generation", { mode: "number" }).notNull(),
    reason: text("reason").notNull(),
    endedAt: instant("ended_at").notNull(),
    /** By which request, and who sent it. */
    requestId: text("request_id").notNull().default(""),
    caller: text("caller").notNull().default(""),
    /** When no authorization was left to be marked. */
    sweptAt: instant("swept_at"),
  },
  (table) => [
    primaryKey({ columns: [table.identityId, table.generation] }),
    index("identity_endings_swept").on(table.sweptAt),
  ],
);

/**
 * The organizations whose authorizations have ended: those with a lower `organizationGeneration`. A row for each, which
 * is kept, so that no generation comes again.
 */
export const organizationEndings = auth.table(
  "organization_endings",
  {
    organizationId: text("organization_id").primaryKey(),
    /** How often they have ended. */
    generation: integer("generation").notNull(),
    /** The last time, by which request, and who sent it. */
    endedAt: instant("ended_at").notNull(),
    requestId: text("request_id").notNull(),
    caller: text("caller").notNull(),
    /** When no authorization was left to be marked. */
    sweptAt: instant("swept_at"),
  },
  (table) => [
    index("organization_endings_unswept").on(table.organizationId).where(sql`${table.sweptAt} is null`),
  ],
);

/** Why an authorization for a user ended. */
export const revocationReasons = [
  "CLIENT",
  "REUSE",
  "IDENTITY_DELETED",
  "PASSWORD_CHANGED",
  "CLIENT_DISABLED",
  "USER",
  "OPERATOR",
] as const;
const reasonList = sql.raw([...revocationReasons, "ORGANIZATION"].map((reason) => `'${reason}'`).join(", "));

/**
 * What clients may do for users and organizations, in the partitions that schema.sql makes. One has ended if revoked_at
 * is set, if its client is disabled, or if its client, identity or organization has reached a higher generation; it has
 * expired after expires_at.
 */
export const authorizations = auth.table(
  "authorizations",
  {
    id: uuid("id").primaryKey(),
    clientId: text("client_id").notNull(),
    /** The client's id where it acts for no user: no identity has it. */
    identityId: text("identity_id").notNull(),
    grantType: text("grant_type").notNull(),
    scopes: text("scopes").array().notNull(),
    createdAt: instant("created_at").notNull(),
    /** The generation of the client when the authorization was created. */
    clientGeneration: integer("client_generation").notNull(),
    /** The latest ending of the identity when the authorization was created; 0 if there was none. */
    identityGeneration: bigint("identity_generation", { mode: "number" }).notNull(),
    /** When the current refresh token expires. */
    expiresAt: instant("expires_at").notNull(),
    /** When the newest pair was issued: with the authorization, or by its last refresh. */
    refreshedAt: instant("refreshed_at").notNull(),
    /** The day (UTC) on which the last of its tokens expires. After it the row goes, and no token of it is active. */
    expiryDay: date("expiry_day").notNull(),
    revokedAt: instant("revoked_at"),
    revocationReason: text("revocation_reason"),
    /** SHA-256 of the part that every refresh token of this authorization shares. */
    familyHash: bytea("family_hash").notNull(),
    /** SHA-256 of the part that changes with each rotation. */
    refreshHash: bytea("refresh_hash").notNull(),
    /** What the client has said of the device, and of the authorization. */
    deviceName: text("device_name"),
    metadata: checkedJson("metadata", jsonObject),

    /** SHA-256 thumbprint (RFC 7638) of the key that the refresh tokens are bound to; null: to none. */
    keyThumbprint: bytea("key_thumbprint"),
    /** Of a bound one, what a retry of its last refresh needs: SHA-256 of the rotating part that was replaced. */
    replacedHash: bytea("replaced_hash"),
    /** The rotating part that replaced it, encrypted under it. */
    sealedSuccessor: bytea("sealed_successor"),
    /** In running time. */
    replacedAt: instant("replaced_at"),
    /** Rotations in a row that were repeated late, the last one among them if `wasRepeatedLate`. */
    lateRotations: integer("late_rotations"),
    wasRepeatedLate: sqlBoolean("was_repeated_late"),

    /** Whom the client acts for, where it acts for no user; null: for itself, or for a user. */
    organizationId: text("organization_id"),
    /** The generation of the organization when the authorization was created; null without one. */
    organizationGeneration: integer("organization_generation"),
  },
  (table) => [
    // The newest of an identity are read in this order, and those of one client without their rows.
    index("authorizations_identity")
      .on(table.identityId, table.id, table.clientId)
      .where(sql`${table.revokedAt} is null`),
    // Written where one is marked as revoked; it costs nothing where one is granted or refreshed.
    index("authorizations_identity_revoked")
      .on(table.identityId, table.id)
      .where(sql`${table.revokedAt} is not null`),
    index("authorizations_client")
      .on(table.clientId, table.clientGeneration)
      .where(sql`${table.revokedAt} is null`),
    index("authorizations_organization")
      .on(table.organizationId, table.organizationGeneration)
      .where(sql`${table.revokedAt} is null and ${table.organizationId} is not null`),
    index("authorizations_expiry_day").on(table.expiryDay),
    check(
      "authorizations_reason",
      sql`(${table.revokedAt} is null) = (${table.revocationReason} is null) and ${table.revocationReason} in (${reasonList})`,
    ),
  ],
);

/** The refresh token that each authorization has replaced last, with the pair that replaced it, for a retry. */
export const replacedTokens = auth.table("replaced_tokens", {
  authorizationId: uuid("authorization_id").primaryKey(),
  /** SHA-256 of the part that changes with each rotation. */
  replacedHash: bytea("replaced_hash").notNull(),
  /** The pair, encrypted under the replaced token. */
  sealedPair: bytea("sealed_pair").notNull(),
  /** The rotation's, in rotation_batches once its commit was seen to succeed. */
  batchId: uuid("batch_id").notNull(),
});

/** Rotations that were committed together: written once a process has seen the commit succeed, never before. */
export const rotationBatches = auth.table("rotation_batches", {
  id: uuid("id").primaryKey(),
  /** In running time: the grace window of the tokens that were replaced begins here. */
  seenAt: instant("seen_at").notNull(),
});

/** When the database last could be used, and for how long in all it could not (running-time.ts). One row. */
export const databasePulse = auth.table(
  "database_pulse",
  {
    onlyRow: integer("only_row").primaryKey(),
    beatenAt: instant("beaten_at").notNull(),
    /** By how much running time is behind the clock. */
    pausedFor: interval("paused_for").notNull(),
    /** In running time; null until a first period has begun. */
    periodBeganAt: instant("period_began_at"),
    /** The least that `pausedFor` was in this period. */
    leastPausedFor: interval("least_paused_for").notNull().default("0"),
    /** The least that it was in the period before. */
    leastPausedForBefore: interval("least_paused_for_before").notNull().default("0"),
  },
  (table) => [check("database_pulse_only_row", sql`${table.onlyRow} = 1`)],
);

/**
 * Access tokens that were revoked individually. Kept until they would have expired, and a day more, and while their
 * authorization has its row, until whose end the janitor puts expires_at off.
 */
export const revokedAccessTokens = auth.table(
  "revoked_access_tokens",
  { jti: text("jti").primaryKey(), expiresAt: instant("expires_at").notNull() },
  (table) => [index("revoked_access_tokens_expiry").on(table.expiresAt)],
);

/** OTP proofs that were redeemed, because each works once. Kept until they would have expired, and a day more. */
export const redeemedOtpProofs = auth.table(
  "redeemed_otp_proofs",
  {
    /** SHA-256 of issuer and jti, or of issuer and proof. */
    proofHash: bytea("proof_hash").primaryKey(),
    expiresAt: instant("expires_at").notNull(),
  },
  (table) => [index("redeemed_otp_proofs_expiry").on(table.expiresAt)],
);

/** The key of the nonces that proofs may name. One row. */
export const nonceKeys = auth.table(
  "nonce_keys",
  { onlyRow: integer("only_row").primaryKey(), key: bytea("key").notNull() },
  (table) => [check("nonce_keys_only_row", sql`${table.onlyRow} = 1`)],
);

/** Counters of attempts, each in a window that ends at `expire`; keys are digests. */
export const attempts = auth.table(
  "attempts",
  { key: text("key").primaryKey(), points: integer("points").notNull(), expire: instant("expire") },
  (table) => [index("attempts_expire").on(table.expire)],
);

/** The processes that may answer introspection from standbys. */
export const readLeases = leaseTable(auth);

/** Events, each written in the transaction of its change and kept until it has been delivered. */
export const outbox = outboxTable(auth);

/** The processes that relay them. */
export const relayLeases = relayLeaseTable(auth);
