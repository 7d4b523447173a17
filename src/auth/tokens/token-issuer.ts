/**
 * Issues token pairs. This is the only place that makes authorizations: one statement checks that the
 * identity still is what the grant saw, creates the authorization, and writes its event. An identity that is
 * deleted, or whose password is changed, at the same moment either sees the authorization and ends it, or
 * makes this statement find nothing.
 */
import { type SQL, sql } from "drizzle-orm";
import { type Clock, unixSeconds } from "../../platform/clock.ts";
import { arrayLiteral, type Database, rows } from "../../platform/database.ts";
import { uuidv7 } from "../../platform/ids.ts";
import type { Client } from "../clients/client.ts";
import { type AccessTokens, newJti } from "./access-token.ts";
import { encodeRefreshToken, hashPart, newRefreshToken, type RefreshToken } from "./refresh-token.ts";

/** The answer of the token operation, as the contract has it. Lifetimes are in seconds. */
export interface TokenPair {
  access_token: string;
  refresh_token: string;
  token_type: "Bearer";
  expires_in: number;
  refresh_expires_in: number;
}

/** Whom a grant has established, and what must still hold when the authorization is created. */
export interface Established {
  readonly identityId: string;
  /** The password that was checked must still be the identity's. */
  readonly passwordHash?: string;
  /** The proof must not have been redeemed; it is by this. */
  readonly otpProof?: { readonly hash: Buffer; readonly expiresAt: Date };
}

interface PairRequest {
  readonly client: Client;
  readonly identityId: string;
  readonly refreshToken: RefreshToken;
  readonly scopes: readonly string[];
}

export interface TokenIssuer {
  /** A new authorization and its first pair; undefined if what was established no longer holds. */
  grant(
    client: Client,
    grantType: string,
    established: Established,
    scopes: readonly string[],
  ): Promise<TokenPair | undefined>;
  /** A pair for an authorization that exists. Stores nothing. */
  pair(request: PairRequest): Promise<TokenPair>;
}

interface Dependencies {
  readonly db: Database;
  readonly clock: Clock;
  readonly accessTokens: AccessTokens;
  readonly issuer: string;
}

export function createTokenIssuer({ db, clock, accessTokens, issuer }: Dependencies): TokenIssuer {
  async function pair({ client, identityId, refreshToken, scopes }: PairRequest): Promise<TokenPair> {
    const { accessTokenSeconds, refreshTokenSeconds } = client.tokenSettings;
    const iat = unixSeconds(clock);
    const access_token = await accessTokens.sign({
      iss: issuer,
      sub: identityId,
      aud: [...new Set([client.clientId, ...client.clientSettings.audiences])],
      exp: iat + accessTokenSeconds,
      nbf: iat,
      iat,
      jti: newJti(refreshToken.authorizationId),
      client_id: client.clientId,
      scope: scopes.length > 0 ? scopes.join(" ") : undefined,
    });
    return {
      access_token,
      refresh_token: encodeRefreshToken(refreshToken),
      token_type: "Bearer",
      expires_in: accessTokenSeconds,
      refresh_expires_in: refreshTokenSeconds,
    };
  }

  return {
    pair,

    async grant(client, grantType, established, scopes) {
      const { identityId } = established;
      const now = clock.now();
      const refreshToken = newRefreshToken(uuidv7(now));
      // Signed before it is stored: a crash between the two leaves nothing behind that somebody waits for.
      const issued = await pair({ client, identityId, refreshToken, scopes });
      const created = await rows(
        db,
        grantStatement({ client, grantType, established, scopes, refreshToken, now }),
      );
      return created.length === 1 ? issued : undefined;
    },
  };
}

interface GrantValues {
  readonly client: Client;
  readonly grantType: string;
  readonly established: Established;
  readonly scopes: readonly string[];
  readonly refreshToken: RefreshToken;
  readonly now: number;
}

/** When the tokens of a pair that is issued now expire. */
export function expiriesOf(client: Client, now: number): { access: string; refresh: string } {
  const { accessTokenSeconds, refreshTokenSeconds } = client.tokenSettings;
  const after = (seconds: number) => new Date(now + seconds * 1000).toISOString();
  return { access: after(accessTokenSeconds), refresh: after(refreshTokenSeconds) };
}

function grantStatement({ client, grantType, established, scopes, refreshToken, now }: GrantValues): SQL {
  const { identityId, passwordHash, otpProof } = established;
  const { clientId } = client;
  const { authorizationId, family, rotating } = refreshToken;
  const expiries = expiriesOf(client, now);
  const at = new Date(now).toISOString();
  const passwordHolds = passwordHash === undefined ? sql`` : sql`and password_hash = ${passwordHash}`;
  // Where there is no proof, the identity itself stands in for it.
  const proof = otpProof
    ? sql`insert into auth.redeemed_otp_proofs (proof_hash, expires_at)
          select ${hex(otpProof.hash)}, ${otpProof.expiresAt.toISOString()}::timestamptz from holder
          on conflict do nothing returning 1`
    : sql`select 1 from holder`;
  return sql`
    with holder as (
      select id from auth.identities where id = ${identityId} ${passwordHolds} for share
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
    insert into auth.outbox (id, type, subject, data, occurred_at)
    select gen_random_uuid(), 'auth.authorization.granted.v1', ${identityId},
      jsonb_build_object('identityId', ${identityId}::text, 'authorizationId', id, 'clientId', ${clientId}::text,
        'grantType', ${grantType}::text),
      ${at}::timestamptz
    from granted
    returning 1 as one`;
}

/** Bytes as a parameter that both drivers send alike. */
export function hex(bytes: Buffer): SQL {
  return sql`decode(${bytes.toString("hex")}, 'hex')`;
}
