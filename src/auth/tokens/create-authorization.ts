import { type SQL, sql } from "drizzle-orm";
import { isDatabaseUnavailable } from "../../platform/base/database-errors.ts";
import { batched } from "../../platform/database/batched-lookup.ts";
import { type Database, rows } from "../../platform/database/database.ts";
import type { Client } from "../clients/client.ts";
import { AuthEvents, recordEvent } from "../events.ts";
import { hashPart, type RefreshToken } from "./refresh-token.ts";

/** Whom a grant has established, and what must still hold when the authorization is created. */
export interface Established {
  readonly identityId: string;
  /** The phone number that was proven must still be the identity's. */
  readonly phone?: string;
  /** The password that was checked must still be the identity's. */
  readonly passwordHash?: string;
  /** The proof must not have been redeemed; it is by this. */
  readonly otpProof?: { readonly hash: Buffer; readonly expiresAt: Date };
}

/** A new authorization. */
interface NewAuthorization {
  readonly client: Client;
  readonly grantType: string;
  readonly established: Established;
  readonly scopes: readonly string[];
  readonly refreshToken: RefreshToken;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

/** Made once: it is the same for everybody. */
const recordGranted = recordEvent(
  AuthEvents.authorizationGranted,
  {
    identityId: sql`identity_id`,
    authorizationId: sql`id`,
    clientId: sql`client_id`,
    grantType: sql`grant_type`,
  },
  sql`created_at`,
  sql`from granted`,
);

/** When the tokens of a pair that is issued now expire. */
export function expiriesOf(client: Client, now: number): { access: string; refresh: string } {
  const { accessTokenSeconds, refreshTokenSeconds } = client.tokenSettings;
  const after = (seconds: number) => new Date(now + seconds * 1000).toISOString();
  return { access: after(accessTokenSeconds), refresh: after(refreshTokenSeconds) };
}

/**
 * Must, in one statement, check that the identity and the client still are what the grant saw, redeem the
 * proof if there is one, create the authorization and write its event. An identity that is deleted, or whose
 * password is changed, at the same moment either sees the authorization and ends it, or makes this find
 * nothing. Answers whether there is an authorization now.
 */
type CreateAuthorization = (authorization: NewAuthorization) => Promise<boolean>;

/**
 * Authorizations that are asked for at the same time share a statement, and a commit. That one waits for no
 * lock and its failure counts for nothing, so that nobody depends on what only concerns another: what it has
 * not created is tried again by itself, and only that tells that there is none.
 */
export function createCreateAuthorization(db: Database): CreateAuthorization {
  const together = batched({
    load: async (asked: readonly NewAuthorization[]) => {
      const created = await create(db, asked, sql`skip locked`).catch((error: unknown) => {
        // Whether it was committed is not known, so trying again could not tell either.
        if (isDatabaseUnavailable(error)) throw error;
        return new Set<string>();
      });
      const isCreated = ({ refreshToken }: NewAuthorization) => created.has(refreshToken.authorizationId);
      return new Map(asked.filter(isCreated).map((authorization) => [authorization, true]));
    },
    maxKeys: 128,
  });
  return async (authorization) =>
    (await together(authorization)) ?? (await create(db, [authorization], sql``)).size === 1;
}

/** @returns the ids of those that were created */
async function create(db: Database, asked: readonly NewAuthorization[], waiting: SQL): Promise<Set<string>> {
  const created = await rows<{ id: string }>(
    db,
    sql`
    with asked as (
      select * from json_to_recordset(${JSON.stringify(asked.map(row))}::text::json) as row (
        id uuid, identity_id text, phone text, password_hash text, proof_hash bytea, proof_expires_at timestamptz,
        client_id text, grant_type text, scopes text[], created_at timestamptz, expires_at timestamptz,
        access_expires_at timestamptz, family_hash bytea, refresh_hash bytea)
    ), holder as (
      select id, phone, password_hash from auth.identities where id in (select identity_id from asked)
      for share ${waiting}
    ), registered as (
      select client_id from auth.clients where client_id in (select client_id from asked) and disabled_at is null
      for share ${waiting}
    ), holding as (
      select asked.*, row_number() over (partition by asked.proof_hash order by asked.id) as turn
      from asked join holder on holder.id = asked.identity_id join registered using (client_id)
      where (asked.phone is null or asked.phone = holder.phone)
        and (asked.password_hash is null or asked.password_hash = holder.password_hash)
    ), redeemed as (
      insert into auth.redeemed_otp_proofs (proof_hash, expires_at)
      select proof_hash, proof_expires_at from holding where proof_hash is not null and turn = 1
      -- In one order, so that no two statements wait for each other.
      order by proof_hash
      on conflict do nothing returning proof_hash
    ), granted as (
      insert into auth.authorizations (id, client_id, identity_id, grant_type, scopes, created_at, expires_at,
        access_expires_at, family_hash, refresh_hash, superseded)
      select id, client_id, identity_id, grant_type, scopes, created_at, expires_at,
        access_expires_at, family_hash, refresh_hash, '[]'::jsonb
      from holding
      where proof_hash is null or (turn = 1 and proof_hash in (select proof_hash from redeemed))
      returning id, client_id, identity_id, grant_type, created_at
    ), recorded as (${recordGranted})
    select id from granted`,
  );
  return new Set(created.map(({ id }) => id));
}

function row({ client, grantType, established, scopes, refreshToken, now }: NewAuthorization) {
  const { identityId, phone, passwordHash, otpProof } = established;
  const expiries = expiriesOf(client, now);
  return {
    id: refreshToken.authorizationId,
    identity_id: identityId,
    phone,
    password_hash: passwordHash,
    proof_hash: otpProof && bytea(otpProof.hash),
    proof_expires_at: otpProof?.expiresAt,
    client_id: client.clientId,
    grant_type: grantType,
    scopes,
    created_at: new Date(now),
    expires_at: expiries.refresh,
    access_expires_at: expiries.access,
    family_hash: bytea(hashPart(refreshToken.family)),
    refresh_hash: bytea(hashPart(refreshToken.rotating)),
  };
}

/** Bytes as PostgreSQL reads them from text. */
function bytea(bytes: Buffer): string {
  return `\\x${bytes.toString("hex")}`;
}
