/**
 * The tables of the auth service, all in the PostgreSQL schema `auth`. They hold no credential that an attacker
 * who reads them could use: secrets and passwords are argon2id hashes, tokens are SHA-256 hashes of random
 * values, and the pair kept for a retried refresh is encrypted under the token that was presented.
 */
import { sql } from "drizzle-orm";
import { check, index, integer, jsonb, pgSchema, text, uniqueIndex, uuid } from "drizzle-orm/pg-core";
import { bytea, instant } from "../platform/database/columns.ts";
import { outboxTable } from "../platform/messaging/outbox-table.ts";

export const auth = pgSchema("auth");

/** Registered OAuth2 clients, synchronised from OAUTH_SERVER_CLIENTS at start. */
export const clients = auth.table("clients", {
  clientId: text("client_id").primaryKey(),
  clientName: text("client_name").notNull(),
  /** argon2id, PHC string. */
  secretHash: text("secret_hash").notNull(),
  authenticationMethods: text("authentication_methods").array().notNull(),
  grantTypes: text("grant_types").array().notNull(),
  scopes: text("scopes").array().notNull(),
  clientSettings: jsonb("client_settings").$type<{ audiences: string[]; mayIntrospect: boolean }>().notNull(),
  tokenSettings: jsonb("token_settings")
    .$type<{ accessTokenSeconds: number; refreshTokenSeconds: number; refreshGraceSeconds: number }>()
    .notNull(),
  /** When the client was first listed. */
  registeredAt: instant("registered_at").notNull(),
  /** Set while the client is not listed; meanwhile its tokens are not active. */
  disabledAt: instant("disabled_at"),
});

/** User identities. */
export const identities = auth.table(
  "identities",
  {
    id: text("id").primaryKey(),
    /** Canonical E.164. */
    phone: text("phone").notNull(),
    email: text("email"),
    metadata: jsonb("metadata").$type<Record<string, unknown>>(),
    /** argon2id, PHC string; null while the identity has no password. */
    passwordHash: text("password_hash"),
    createdAt: instant("created_at").notNull(),
    updatedAt: instant("updated_at").notNull(),
  },
  (table) => [
    uniqueIndex("identities_phone_unique").on(table.phone),
    uniqueIndex("identities_email_unique").on(sql`lower(${table.email})`),
  ],
);

/**
 * What clients may do for users. The state follows from the row: REVOKED if revoked_at is set, else EXPIRED
 * after expires_at, else ACTIVE. An authorization has one row, however often it is refreshed.
 */
export const authorizations = auth.table(
  "authorizations",
  {
    id: uuid("id").primaryKey(),
    clientId: text("client_id").notNull(),
    identityId: text("identity_id").notNull(),
    grantType: text("grant_type").notNull(),
    scopes: text("scopes").array().notNull(),
    createdAt: instant("created_at").notNull(),
    /** When the current refresh token expires. */
    expiresAt: instant("expires_at").notNull(),
    /** When the newest access token expires. */
    accessExpiresAt: instant("access_expires_at").notNull(),
    revokedAt: instant("revoked_at"),
    revocationReason: text("revocation_reason"),
    /** SHA-256 of the part that every refresh token of this authorization shares. */
    familyHash: bytea("family_hash").notNull(),
    /** SHA-256 of the part that changes with each rotation. */
    refreshHash: bytea("refresh_hash").notNull(),
    /** Tokens replaced within the grace window, the newest first, each with its sealed successor. */
    superseded: jsonb("superseded").$type<{ hash: string; at: number; sealed: string }[]>().notNull(),
  },
  (table) => [
    index("authorizations_identity").on(table.identityId),
    index("authorizations_client").on(table.clientId),
    index("authorizations_expiry").on(table.expiresAt),
    index("authorizations_superseded").on(table.id).where(sql`${table.superseded} <> '[]'`),
    check(
      "authorizations_reason",
      sql`(${table.revokedAt} is null) = (${table.revocationReason} is null) and ${table.revocationReason} in ('CLIENT', 'REUSE', 'IDENTITY_DELETED', 'PASSWORD_CHANGED', 'CLIENT_DISABLED')`,
    ),
  ],
);

/** Access tokens that were revoked individually. Kept until they would have expired, and a day more. */
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

/** Counters of attempts, each in a window that ends at `expire`; keys are HMACs. */
export const attempts = auth.table(
  "attempts",
  { key: text("key").primaryKey(), points: integer("points").notNull(), expire: instant("expire") },
  (table) => [index("attempts_expire").on(table.expire)],
);

/** Events, each written in the transaction of its change and kept until it has been delivered. */
export const outbox = outboxTable(auth);
