import { type SQL, sql } from "drizzle-orm";
import { arrayLiteral, type Database, rows } from "../../platform/database.ts";
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
export interface NewAuthorization {
  readonly client: Client;
  readonly grantType: string;
  readonly established: Established;
  readonly scopes: readonly string[];
  readonly refreshToken: RefreshToken;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

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
 * nothing.
 * @returns whether there is an authorization now
 */
export async function createAuthorization(db: Database, authorization: NewAuthorization): Promise<boolean> {
  const created = await rows(db, statement(authorization));
  return created.length === 1;
}

function statement(authorization: NewAuthorization): SQL {
  const { client, grantType, established, scopes, refreshToken, now } = authorization;
  const { identityId, phone, passwordHash, otpProof } = established;
  const { clientId } = client;
  const { authorizationId, family, rotating } = refreshToken;
  const expiries = expiriesOf(client, now);
  const at = new Date(now).toISOString();
  const passwordHolds = passwordHash === undefined ? sql`` : sql`and password_hash = ${passwordHash}`;
  const phoneHolds = phone === undefined ? sql`` : sql`and phone = ${phone}`;
  // Where there is no proof, the identity itself stands in for it.
  const proof = otpProof
    ? sql`insert into auth.redeemed_otp_proofs (proof_hash, expires_at)
          select ${hex(otpProof.hash)}, ${otpProof.expiresAt.toISOString()}::timestamptz from holder
          on conflict do nothing returning 1`
    : sql`select 1 from holder`;
  return sql`
    with holder as (
      select id from auth.identities where id = ${identityId} ${passwordHolds} ${phoneHolds} for share
    ), registered as (
      select client_id from auth.clients where client_id = ${clientId} and disabled_at is null for share
    ), proof as (${proof}
    ), granted as (
      insert into auth.authorizations (id, client_id, identity_id, grant_type, scopes, created_at, expires_at,
        access_expires_at, family_hash, refresh_hash, superseded)
      select ${authorizationId}::uuid, registered.client_id, holder.id, ${grantType}, ${arrayLiteral(scopes)}::text[],
        ${at}::timestamptz, ${expiries.refresh}::timestamptz, ${expiries.access}::timestamptz,
        ${hex(hashPart(family))}, ${hex(hashPart(rotating))}, '[]'::jsonb
      from holder, registered, proof
      returning id
    )
    ${recordEvent(
      AuthEvents.authorizationGranted,
      {
        identityId: sql`${identityId}::text`,
        authorizationId: sql`id`,
        clientId: sql`${clientId}::text`,
        grantType: sql`${grantType}::text`,
      },
      new Date(now),
      sql`from granted`,
    )}`;
}

/** Bytes as a parameter that both drivers send alike. */
function hex(bytes: Buffer): SQL {
  return sql`decode(${bytes.toString("hex")}, 'hex')`;
}
