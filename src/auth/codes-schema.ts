/** The tables of one-time codes: the challenges that wait for one, and what became of those that were sent. */
import { sql } from "drizzle-orm";
import { bigint, boolean, index, smallint, text, uniqueIndex, uuid } from "drizzle-orm/pg-core";
import { bytea, instant } from "../platform/database/sql/columns.ts";
import { auth } from "./schema.ts";

/**
 * Challenges of public clients, each for one phone, which end with an authorization code. What is fixed at the beginning never changes. No row helps whoever
 * reads it: the code's HMAC has the `auth_session` as its key, of which there is only a hash.
 */
export const challengeSessions = auth.table(
  "challenge_sessions",
  {
    /** SHA-256 of the `auth_session`. */
    sessionHash: bytea("session_hash").primaryKey(),
    /** Canonical E.164. */
    phone: text("phone").notNull(),
    clientId: text("client_id").notNull(),
    /** As the client has asked for them; null: it has named none. */
    scopes: text("scopes").array(),
    /** PKCE, S256 (RFC 7636). */
    codeChallenge: text("code_challenge").notNull(),
    /** SHA-256 thumbprint of the client's key (RFC 7638), as base64url. */
    keyThumbprint: text("key_thumbprint").notNull(),
    /** Who had the phone at the beginning; null: nobody. */
    identityId: text("identity_id"),
    /** The latest ending of the identity at the beginning; 0 if there was none. */
    identityGeneration: bigint("identity_generation", { mode: "number" }).notNull(),
    /** Whether the phone gets its codes; if not, no code is right. */
    isSent: boolean("is_sent").notNull(),
    /** HMAC-SHA-256 of the newest code. */
    otpMac: bytea("otp_mac").notNull(),
    otpExpiresAt: instant("otp_expires_at").notNull(),
    /** The row of sent_codes of the newest code. */
    sentCodeId: uuid("sent_code_id").notNull(),
    /** When the next code may be asked for. */
    resendAt: instant("resend_at").notNull(),
    /** How many codes were made, the first among them. */
    codesMade: smallint("codes_made").notNull(),
    wrongTries: smallint("wrong_tries").notNull().default(0),
    createdAt: instant("created_at").notNull(),
    expiresAt: instant("expires_at").notNull(),
    /**
     * SHA-256 of the newest authorization code; null until a one-time code was right. Who has the code can derive its
     * first refresh token, so that no token is here.
     */
    codeHash: bytea("code_hash"),
    codeExpiresAt: instant("code_expires_at"),
    /** The id of the authorization that its exchange makes. */
    authorizationId: uuid("authorization_id"),
    /** When it was exchanged; no one-time code is right from then on. */
    exchangedAt: instant("exchanged_at"),
  },
  (table) => [
    uniqueIndex("challenge_sessions_code").on(table.codeHash).where(sql`${table.codeHash} is not null`),
    index("challenge_sessions_expiry").on(table.expiresAt),
  ],
);

/** The codes of the last hour and whether they were used, for the breakers. */
export const sentCodes = auth.table(
  "sent_codes",
  {
    id: uuid("id").primaryKey(),
    /** The digits of the phone without the last four. */
    prefix: text("prefix").notNull(),
    sentAt: instant("sent_at").notNull(),
    isUsed: boolean("is_used").notNull().default(false),
  },
  (table) => [
    index("sent_codes_prefix").on(table.prefix, table.sentAt),
    index("sent_codes_sent").on(table.sentAt),
  ],
);

/** The prefixes whose breakers are open: hardly anybody uses the codes that they get. */
export const openBreakers = auth.table("open_breakers", {
  prefix: text("prefix").primaryKey(),
  openedAt: instant("opened_at").notNull(),
});
